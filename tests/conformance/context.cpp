#include "conformance/context.h"

#include <algorithm>
#include <cstring>

#include "base/copy.h"

namespace heddle::conformance {
namespace {

std::size_t area_bytes(const Options& options) {
  return (options.largest_bytes + 2 * Context::kMargin + 255) / 256 * 256;
}

}  // namespace

Bytes pattern(std::size_t size_bytes, std::uint64_t seed) {
  Bytes bytes(size_bytes);
  std::uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < size_bytes; i += sizeof(state)) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const std::uint64_t word = state ^ (state >> 29);
    std::memcpy(&bytes[i], &word, std::min(sizeof(word), size_bytes - i));
  }
  return bytes;
}

void expect_bytes(std::span<const std::byte> got, std::span<const std::byte> wanted, const std::string& what) {
  expect(got.size() == wanted.size(), "{}: {} bytes instead of {}", what, got.size(), wanted.size());
  if (got.empty() || std::memcmp(got.data(), wanted.data(), got.size()) == 0) return;
  const auto place = std::mismatch(got.begin(), got.end(), wanted.begin()).first - got.begin();
  const auto at = [&](std::span<const std::byte> bytes) { return std::to_integer<int>(bytes[std::size_t(place)]); };
  throw CheckFailed(fmt::format("{}: byte {} of {} is {} instead of {}", what, place, got.size(), at(got), at(wanted)));
}

std::size_t heap_bytes_for(const Options& options) {
  constexpr std::size_t kOfCases = std::size_t{1} << 16;  // what a case allocates for itself
  return 2 * area_bytes(options) + Context::kFlags * sizeof(std::uint64_t) + kOfCases;
}

Context::Context(Fabric& fabric, Stream& stream, const Options& options)
    : fabric_(fabric),
      stream_(stream),
      options_(options),
      areas_(fabric.allocate(2 * area_bytes(options))),
      flags_(fabric.allocate(kFlags * sizeof(std::uint64_t))),
      own_(area_bytes(options), fabric.device()) {
  fabric_.meet();  // from here on kernels may wait for other ranks, and nobody allocates
}

int Context::rounds() const {
  return std::max(20, options_.rounds / std::max(1, size() / 2));
}

void Context::write(void* place, std::span<const std::byte> bytes) {
  if (!bytes.empty()) enqueue_copy(stream_, place, bytes.data(), bytes.size());
  fabric_.synchronize(stream_);
}

Bytes Context::read(const void* place, std::size_t size_bytes) {
  Bytes bytes(size_bytes);
  fabric_.synchronize(stream_);  // a copy to the host's memory may hold up other ranks' launches while it waits
  if (size_bytes != 0) enqueue_copy(stream_, bytes.data(), place, size_bytes);
  fabric_.synchronize(stream_);
  return bytes;
}

std::uint64_t Context::read_word(const void* place) {
  std::uint64_t word = 0;
  fabric_.synchronize(stream_);
  enqueue_copy(stream_, &word, place, sizeof(word));
  fabric_.synchronize(stream_);
  return word;
}

void Context::meet() {
  fabric_.barrier(stream_);
  fabric_.synchronize(stream_);
}

void Context::clear_flags() {
  meet();
  write(flags_.data, Bytes(flags_.size_bytes));
  meet();
}

Seen::Seen(Context& context, std::size_t words)
    : context_(context), words_(words), memory_(words * sizeof(std::uint64_t), context.fabric().device()) {
  context.fabric().meet();
}

void Seen::note(Stream& stream, std::size_t i, const void* place, std::size_t words) {
  enqueue_copy(stream, memory_.data() + i * sizeof(std::uint64_t), place, words * sizeof(std::uint64_t));
}

std::vector<std::uint64_t> Seen::read() {
  const Bytes bytes = context_.read(memory_.data(), memory_.size_bytes());
  std::vector<std::uint64_t> words(words_);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace heddle::conformance

// What a conformance case works with: a rank's fabric, a stream, and scratch memory of the fabric's device. Cases look
// at memory through copies, so they are the same on the CPU and on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/stream.h"
#include "fabric/fabric.h"

namespace heddle::conformance {

using Bytes = std::vector<std::byte>;

// A fabric does not do what fabric.h says.
struct CheckFailed : Failure {
  using Failure::Failure;
};

template <class... Args>
void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw CheckFailed(fmt::format(format, std::forward<Args>(args)...));
}

// Bytes that any rank can compute; other seeds, other bytes.
Bytes pattern(std::size_t size_bytes, std::uint64_t seed);

// Compares, naming the first byte that differs.
void expect_bytes(std::span<const std::byte> got, std::span<const std::byte> wanted, const std::string& what);

struct Options {
  std::size_t largest_bytes = std::size_t{1} << 20;  // of one transfer
  int rounds = 1000;                                 // of what is tried again and again
  std::uint64_t seed = 1;                            // of the soak's delays and sizes; the same on every rank
};

// What a context of these options allocates of the heap, and its cases with it.
std::size_t heap_bytes_for(const Options& options);

class Context {
 public:
  static constexpr int kFlags = 512;
  static constexpr std::size_t kMargin = 256;  // on each side of the largest transfer

  // Collective.
  Context(Fabric& fabric, Stream& stream, const Options& options);

  Fabric& fabric() { return fabric_; }
  Stream& stream() { return stream_; }
  const Options& options() const { return options_; }
  int rank() const { return fabric_.rank(); }
  int size() const { return fabric_.size(); }
  int rounds() const;  // fewer where more ranks share the cores
  int next(int distance = 1) const { return (rank() + distance) % size(); }
  int previous(int distance = 1) const { return (rank() - distance % size() + size()) % size(); }

  // Two symmetric areas for largest_bytes and a margin on each side, which they point behind.
  std::byte* left() const { return areas_.data + kMargin; }
  std::byte* right() const { return areas_.data + areas_.size_bytes / 2 + kMargin; }
  std::uint64_t* flag(int index) const { return reinterpret_cast<std::uint64_t*>(flags_.data) + index; }
  // As large as an area, of this rank alone.
  std::byte* own() { return own_.data() + kMargin; }

  // All three return when it is done, as far as this rank goes.
  void write(void* place, std::span<const std::byte> bytes);
  Bytes read(const void* place, std::size_t size_bytes);
  std::uint64_t read_word(const void* place);

  // Every rank has come here, and all that it did before is done.
  void meet();
  // Every rank's flags are 0, before any rank goes on.
  void clear_flags();

 private:
  Fabric& fabric_;
  Stream& stream_;
  Options options_;
  SymmetricSpan areas_;
  SymmetricSpan flags_;
  Buffer own_;
};

// What a case sees on its way: words of the device's memory, copied there in stream order and looked at when all is
// done, so that no host waits in between, nor holds up ranks of the same process that share its GPU.
class Seen {
 public:
  // Collective: memory is taken before any kernel waits.
  Seen(Context& context, std::size_t words);

  // Enqueues a copy of `words` words at `place`, to be found at index i, i + 1, ...
  void note(Stream& stream, std::size_t i, const void* place, std::size_t words = 1);

  // All of them; returns when it is done.
  std::vector<std::uint64_t> read();

 private:
  Context& context_;
  std::size_t words_;
  Buffer memory_;
};

}  // namespace heddle::conformance

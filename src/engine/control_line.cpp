#include "engine/control_line.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/atomics.h"
#include "fabric/symmetric_heap.h"

namespace heddle {
namespace {

// Steps follow each other within milliseconds; a user takes seconds.
constexpr std::chrono::milliseconds kAlert{20};
constexpr std::chrono::microseconds kShortNap{50};
constexpr std::chrono::milliseconds kLongNap{2};

constexpr std::size_t kSizeBytes = 256;  // a size, and the alignment of what follows

}  // namespace

std::size_t ControlLine::slot_bytes() {
  return kSizeBytes + kMostBytes;
}

std::size_t ControlLine::heap_bytes(int ranks) {
  return 2 * slot_bytes() + static_cast<std::size_t>(ranks) * kMostToAll + 3 * SymmetricHeap::kAlignment;
}

ControlLine::ControlLine(Fabric& fabric)
    : fabric_(fabric),
      slots_(fabric.allocate(2 * slot_bytes()).data),
      from_all_(fabric.allocate(static_cast<std::size_t>(fabric.size()) * kMostToAll).data),
      num_sent_(reinterpret_cast<std::uint64_t*>(fabric.allocate(sizeof(std::uint64_t)).data)) {}

void ControlLine::send(std::span<const std::byte> message) {
  if (message.size() > kMostBytes)
    throw_error<Failure>(
        "a step of {} bytes is more than the {} that ranks in processes take: use fewer sequences or "
        "a smaller KV cache",
        message.size(), kMostBytes);
  const std::uint64_t size = message.size();
  staging_.resize(kSizeBytes + message.size());
  std::memcpy(staging_.data(), &size, sizeof size);
  std::ranges::copy(message, staging_.begin() + kSizeBytes);
  std::byte* const place = slot(count_);
  ++count_;
  for (int peer = 0; peer < fabric_.size(); ++peer) {
    if (peer == fabric_.rank()) continue;
    fabric_.put(stream_, peer, place, staging_.data(), staging_.size());
    fabric_.signal(stream_, peer, num_sent_, count_);
  }
  fabric_.synchronize(stream_);
}

std::span<const std::byte> ControlLine::receive() {
  const auto begin = std::chrono::steady_clock::now();
  while (atomic_load(num_sent_) <= count_) {
    const bool alert = std::chrono::steady_clock::now() - begin < kAlert;
    if (alert) {
      std::this_thread::sleep_for(kShortNap);
      continue;
    }
    check();
    std::this_thread::sleep_for(kLongNap);
  }
  const std::byte* const place = slot(count_);
  ++count_;
  std::uint64_t size = 0;
  std::memcpy(&size, place, sizeof size);
  require(size <= kMostBytes, "a message of {} bytes", size);
  return {place + kSizeBytes, static_cast<std::size_t>(size)};
}

std::vector<std::vector<std::byte>> ControlLine::gather(std::span<const std::byte> mine) {
  require(mine.size() <= kMostToAll, "{} bytes for all ranks, expected at most {}", mine.size(), kMostToAll);
  fabric_.meet();  // all have read what was given before
  const auto place_of = [&](int rank) { return from_all_ + static_cast<std::size_t>(rank) * kMostToAll; };
  for (int peer = 0; peer < fabric_.size(); ++peer)
    fabric_.put(stream_, peer, place_of(fabric_.rank()), mine.data(), mine.size());
  fabric_.barrier(stream_);
  fabric_.synchronize(stream_);
  std::vector<std::vector<std::byte>> all;
  all.reserve(static_cast<std::size_t>(fabric_.size()));
  for (int rank = 0; rank < fabric_.size(); ++rank) all.emplace_back(place_of(rank), place_of(rank) + mine.size());
  return all;
}

}  // namespace heddle

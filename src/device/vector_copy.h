// The copy behind put and get: the lanes of a group share the bytes, 16 at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"
#include "device/group.h"

namespace heddle {

// 16 bytes that move as one.
struct alignas(16) Vector16 {
  std::uint32_t words[4];
};

namespace detail {

// Copies `count` words; both addresses are aligned to Word. Each lane keeps four loads in flight to hide the latency of
// peer memory.
template <class Word, Group G>
HEDDLE_HOST_DEVICE void copy_words(const G& group, Word* destination, const Word* source, std::size_t count) {
  constexpr std::size_t kInFlight = 4;
  const auto lanes = static_cast<std::size_t>(group.lanes());
  std::size_t i = static_cast<std::size_t>(group.lane());
  for (; i + (kInFlight - 1) * lanes < count; i += kInFlight * lanes) {
    Word words[kInFlight];
    for (std::size_t k = 0; k < kInFlight; ++k) words[k] = source[i + k * lanes];
    for (std::size_t k = 0; k < kInFlight; ++k) destination[i + k * lanes] = words[k];
  }
  for (; i < count; i += lanes) destination[i] = source[i];
}

}  // namespace detail

// Copies `count` whole vectors. No lane may rely on another's part before group.sync().
template <Group G>
HEDDLE_HOST_DEVICE void copy_vectors(const G& group, Vector16* destination, const Vector16* source, std::size_t count) {
  detail::copy_words(group, destination, source, count);
}

// Copies `bytes`; the ranges do not overlap. Uses 16-byte words if both addresses have the same offset from a multiple
// of 16, narrower ones otherwise. No lane may rely on another's part before group.sync().
template <Group G>
HEDDLE_HOST_DEVICE void vector_copy(const G& group, void* destination, const void* source, std::size_t bytes) {
#ifdef __CUDA_ARCH__
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  const auto differ = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  const auto in_words_of = [&]<class Word>(Word) {
    std::size_t head = (sizeof(Word) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
    if (head > bytes) head = bytes;
    const std::size_t words = (bytes - head) / sizeof(Word);
    const std::size_t tail = head + words * sizeof(Word);
    detail::copy_words(group, to, from, head);
    detail::copy_words(group, reinterpret_cast<Word*>(to + head), reinterpret_cast<const Word*>(from + head), words);
    detail::copy_words(group, to + tail, from + tail, bytes - tail);
  };
  if (differ % 16 == 0) {
    in_words_of(Vector16{});
  } else if (differ % 4 == 0) {
    in_words_of(std::uint32_t{});
  } else {
    detail::copy_words(group, to, from, bytes);
  }
#else
  const auto lanes = static_cast<std::size_t>(group.lanes()), lane = static_cast<std::size_t>(group.lane());
  const std::size_t each = (bytes + lanes - 1) / lanes, begin = lane * each;
  if (begin < bytes)
    std::memcpy(static_cast<std::byte*>(destination) + begin, static_cast<const std::byte*>(source) + begin,
                each < bytes - begin ? each : bytes - begin);
#endif
}

}  // namespace heddle

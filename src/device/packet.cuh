// Packets: sixteen bytes that a rank pushes to another, in words of which one value means "not yet arrived".
//
// A packet is stored and loaded as two 64-bit words, each of which arrives whole (single-copy atomic; the two may
// arrive in any order). A word that holds kEmpty has not arrived, so kEmpty is never sent: send() replaces it by
// kEscape.
//   - Floats that are summed need no more: each element of either word is a NaN as float32, bfloat16 and float16, so
//     only a NaN's payload changes.
//   - For bytes that must arrive unchanged, the receiver has one code byte beside each packet, 0 by default. If the
//     data hold kEmpty or kEscape, the sender also writes escape_code() there; a receiver that finds kEscape waits for
//     the code and sets it back to 0. Other data cost one comparison.
//
// Loads and stores are relaxed, on the CPU as on a GPU, because the receiver polls the data themselves. Packets order
// no other memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/alignment.h"
#include "base/host_device.h"
#include "device/atomics.h"

namespace heddle {

inline constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // memset(0xff)
inline constexpr std::uint64_t kEscape = kEmpty - 1;        // the largest word that is sent

struct alignas(16) Packet {
  std::uint64_t words[2];
};
inline constexpr std::size_t kPacketBytes = sizeof(Packet);
static_assert(kPacketBytes == kVectorBytes, "an aligned packet is loaded and stored at once");

constexpr std::size_t packets_of(std::size_t bytes) {
  return (bytes + kPacketBytes - 1) / kPacketBytes;
}

// Both words as they are now; a peer may be writing them.
HEDDLE_HOST_DEVICE Packet look(const Packet* place) {
  Packet packet;
#ifdef __CUDA_ARCH__
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(packet.words[0]), "=l"(packet.words[1])
               : "l"(place)
               : "memory");
#else
  for (int i = 0; i < 2; ++i) packet.words[i] = atomic_load<Order::relaxed>(&place->words[i]);
#endif
  return packet;
}

HEDDLE_HOST_DEVICE bool arrived(const Packet& packet) {
  return packet.words[0] != kEmpty && packet.words[1] != kEmpty;
}

namespace detail {
HEDDLE_HOST_DEVICE void write(Packet* place, const Packet& packet) {
#ifdef __CUDA_ARCH__
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(place), "l"(packet.words[0]), "l"(packet.words[1])
               : "memory");
#else
  for (int i = 0; i < 2; ++i) atomic_store<Order::relaxed>(&place->words[i], packet.words[i]);
#endif
}
}  // namespace detail

HEDDLE_HOST_DEVICE void send(Packet* place, Packet packet) {
  for (auto& word : packet.words) word = word < kEscape ? word : kEscape;
  detail::write(place, packet);
}

HEDDLE_HOST_DEVICE void clear(Packet* place) {
  detail::write(place, {{kEmpty, kEmpty}});
}

// Whether data, or a packet that has arrived, hold a word that needs its code.
HEDDLE_HOST_DEVICE bool has_escape(const Packet& packet) {
  return packet.words[0] >= kEscape || packet.words[1] >= kEscape;
}

// Never 0. Says which words of the data were kEmpty; other words that arrive as kEscape were kEscape.
HEDDLE_HOST_DEVICE std::uint8_t escape_code(const Packet& data) {
  return static_cast<std::uint8_t>(4 | (data.words[0] == kEmpty ? 1 : 0) | (data.words[1] == kEmpty ? 2 : 0));
}

// The data of a packet that arrived with that code.
HEDDLE_HOST_DEVICE Packet unescaped(const Packet& arrived, unsigned code) {
  return {{(code & 1) != 0 ? kEmpty : arrived.words[0], (code & 2) != 0 ? kEmpty : arrived.words[1]}};
}

// Packet `index` of `bytes` bytes at `source`, of any alignment; bytes past the end are 0.
HEDDLE_HOST_DEVICE Packet load_packet(const std::byte* source, std::size_t index, std::size_t bytes) {
  const std::size_t first = index * kPacketBytes;
  Packet packet{};
#ifdef __CUDA_ARCH__
  if (first + kPacketBytes <= bytes && is_aligned(source)) {
    const ulonglong2 words = *reinterpret_cast<const ulonglong2*>(source + first);
    return {{words.x, words.y}};
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (first + i < bytes) packet.words[i / 8] |= static_cast<std::uint64_t>(source[first + i]) << (8 * (i % 8));
#else
  if (first + kPacketBytes <= bytes)
    std::memcpy(&packet, source + first, kPacketBytes);
  else
    std::memcpy(&packet, source + first, bytes - first);
#endif
  return packet;
}

// The reverse: bytes past the end are not written.
HEDDLE_HOST_DEVICE void store_packet(std::byte* destination, std::size_t index, std::size_t bytes,
                                     const Packet& packet) {
  const std::size_t first = index * kPacketBytes;
#ifdef __CUDA_ARCH__
  if (first + kPacketBytes <= bytes && is_aligned(destination)) {
    *reinterpret_cast<ulonglong2*>(destination + first) = make_ulonglong2(packet.words[0], packet.words[1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (first + i < bytes)
      destination[first + i] = static_cast<std::byte>(static_cast<unsigned char>(packet.words[i / 8] >> (8 * (i % 8))));
#else
  if (first + kPacketBytes <= bytes)
    std::memcpy(destination + first, &packet, kPacketBytes);
  else
    std::memcpy(destination + first, &packet, bytes - first);
#endif
}

}  // namespace heddle

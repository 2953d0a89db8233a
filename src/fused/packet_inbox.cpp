#include "fused/packet_inbox.h"

#include <cstring>
#include <utility>

#include "base/stream.h"
#include "device/low_latency.cuh"
#include "fabric/symmetric_heap.h"
#include "fused/all_reduce_norm/all_reduce_norm_sm90.h"  // fills an inbox

namespace heddle {
namespace {

constexpr const char* kInboxSize = "packet inbox: bytes";

template <class Allocate>
PacketMemory inbox_parts(std::size_t buffer_bytes, Allocate allocate) {
  PacketMemory memory{.buffer_bytes = round_up(buffer_bytes, kPacketBytes)};
  const std::size_t inbox_bytes = checked_mul<std::size_t>(kInboxBuffers, memory.buffer_bytes, kInboxSize);
  memory.inbox = allocate(inbox_bytes);
  memory.codes = reinterpret_cast<std::uint8_t*>(allocate(packets_of(inbox_bytes)));
  memory.blocks = reinterpret_cast<PacketBlockState*>(allocate(PacketMemory::kMostBlocks * sizeof(PacketBlockState)));
  return memory;
}

}  // namespace

std::size_t PacketInbox::heap_bytes(std::size_t buffer_bytes) {
  std::size_t bytes = 0;
  static_cast<void>(inbox_parts(buffer_bytes, [&bytes](std::size_t size) -> std::byte* {
    bytes = checked_add(bytes, round_up(size, SymmetricHeap::kAlignment), kInboxSize);
    return nullptr;
  }));
  return bytes;
}

std::size_t PacketInbox::buffer_bytes_for(int ranks, std::size_t packets) {
  const std::size_t of_all = checked_mul(static_cast<std::size_t>(ranks), packets, kInboxSize);
  return std::min(checked_mul(of_all, kPacketBytes, kInboxSize), kMostBufferBytes);
}

PacketInbox::PacketInbox(Fabric& fabric, std::size_t buffer_bytes)
    : heap_memory_(fabric, heap_bytes(buffer_bytes)),
      memory_(inbox_parts(buffer_bytes, [next = heap_memory_.data()](std::size_t bytes) mutable {
        return std::exchange(next, next + round_up(bytes, SymmetricHeap::kAlignment));
      })) {
  const std::size_t inbox_bytes = kInboxBuffers * memory_.buffer_bytes;
  if (fabric.device().kind == DeviceKind::cpu) {
    std::memset(memory_.inbox, 0xff, inbox_bytes);  // kEmpty
  } else if constexpr (kHaveCuda) {
    Stream stream(fabric.device());
    fill_norm_inbox_sm90(memory_.inbox, inbox_bytes, stream);
    stream.synchronize();
  }
  fabric.meet();  // no rank may push before every inbox is empty
}

}  // namespace heddle

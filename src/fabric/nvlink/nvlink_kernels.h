// The kernels of the fabric's stream operations. All throw Failure when the launch fails; none waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "device/peers.h"
#include "device/semaphore.h"
#include "device/spin.h"

namespace heddle::nvlink {

// Copies by `blocks` blocks between any addresses that the device reaches. Ranges do not overlap.
void launch_copy(Stream& stream, void* destination, const void* source, std::size_t bytes, int blocks);

// Release at system scope of all that the stream did before.
enum class SignalKind : std::uint8_t { store, add };
void launch_signal(Stream& stream, std::uint64_t* place, std::uint64_t value, SignalKind kind);
void launch_fence(Stream& stream);

// Acquire at system scope; gives up at the limit.
void launch_wait(Stream& stream, const WaitLimit& limit, const WaitReason& reason, const std::uint64_t* flag,
                 std::uint64_t target);
void launch_wait_next(Stream& stream, const WaitLimit& limit, const WaitReason& reason, Semaphore* semaphore);

// One rank's part in a barrier of a team. `arrived` is symmetric, with one word for each rank of the world: how many
// barriers of this team that rank has entered. `entered` is this rank's own count.
struct BarrierBody {
  Peers peers;  // of the team
  std::int16_t world_ranks[kMaxPeers];
  int first_rank;  // by which errors name rank 0
  std::uint64_t* arrived;
  std::uint64_t* entered;
};
void launch_barrier(Stream& stream, const BarrierBody& body);

// Stores (nonce, writer, reader) into `slots`[own rank] at every rank, by the world's addresses.
void launch_probe_write(Stream& stream, const Peers& world, std::uint64_t* slots, std::uint64_t nonce);
// seen[peer] = slots[own rank] as it lies at that peer; seen[size + peer] = own slots[peer].
void launch_probe_read(Stream& stream, const Peers& world, const std::uint64_t* slots, std::uint64_t* seen);
constexpr std::uint64_t probe_word(std::uint64_t nonce, int writer, int reader) {
  return nonce << 16 ^ static_cast<std::uint64_t>(writer) << 8 ^ static_cast<std::uint64_t>(reader);
}

// Stores the device's clock (now_nanoseconds). The kernel is kClockKernel of base/tracer.h.
void launch_stamp_clock(Stream& stream, std::uint64_t* place);

// Loads every kernel above onto the device and sets its attributes. A first launch might do that while kernels wait for
// this rank, and would then wait for them.
void load_kernels(Device device);

}  // namespace heddle::nvlink

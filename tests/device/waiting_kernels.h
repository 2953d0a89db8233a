// Kernels that wait at an mbarrier, for waits_cuda_test.cpp.
#pragma once

#include <cstdint>

#include "base/stream.h"
#include "device/kernel_waits.h"

namespace heddle {

inline constexpr int kWaitingBlocks = 3, kWaitingThreads = 128;

enum class PhaseEnds : std::uint8_t { never, at_once, late };  // late: after tens of milliseconds

// WaitDeadline; the same, kWaitsInARow times; LongWaitDeadline.
enum class WaitKind : std::uint8_t { deadline, deadlines_in_a_row, long_deadline };
inline constexpr int kWaitsInARow = 1000;

// Every thread waits for the phase, and stores 1 if it saw the end, 2 if it gave up: [kWaitingBlocks, kWaitingThreads].
void enqueue_wait(PhaseEnds ends, WaitKind kind, const KernelWaits& waits, int* seen, Stream& stream);

}  // namespace heddle

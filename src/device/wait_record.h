// The record of a wait that gave up. A kernel cannot throw: it fills the record and returns, and the host throws.
#pragma once

#include <cstdint>

#include "device/tag.h"

namespace heddle {

struct WaitLog;

// Which rank waits for which and why, for the error and the trace. Rank -1: a block waits for others of its kernel.
struct WaitReason {
  int rank;
  int from;
  Tag tag;
};

// Lies where all waits of a rank reach it (for `shm`, those of all ranks; for a GPU, in pinned host memory). The first
// wait that gives up fills it; the others see `state` and give up, too.
struct WaitRecord {
  enum State : std::uint32_t { empty, being_written, complete };

  std::uint32_t state = empty;  // written and read as an atomic; `complete` is the release of all below
  std::int32_t rank = -1;       // that waited
  std::int32_t from = -1;       // that it waited for
  std::uint32_t reserved = 0;
  std::uint64_t expected = 0;
  std::uint64_t observed = 0;
  Tag tag;
};

// How long a wait may last, where it reports, and where a kernel stamps it.
struct WaitLimit {
  WaitRecord* record = nullptr;
  std::uint64_t nanoseconds = 10'000'000'000;
  std::uint32_t looks_before_yield =
      256;                 // on the CPU, before a wait offers its core to others (fabric/looks_before_yield.h)
  WaitLog* log = nullptr;  // of a GPU (wait_log.h); null: nobody traces
};

}  // namespace heddle

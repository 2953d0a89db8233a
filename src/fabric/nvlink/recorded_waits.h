// The waits for peers inside a rank's kernels, recorded while a Tracer lives.
#pragma once

#include <cstddef>

#include "base/buffer.h"
#include "base/device.h"
#include "base/tracer.h"
#include "device/wait_log.h"

namespace heddle {

class RecordedWaits {
 public:
  // 48 bytes each, on the GPU. Some hundred steps of a large model; waits behind them are counted.
  static constexpr std::uint32_t kMostWaits = 1U << 20;

  // Takes memory of the device if a Tracer lives, else nothing. Kernels are loaded (load_kernels), and none waits.
  explicit RecordedWaits(Device device);
  // Hands what kernels have stamped to the Tracer. They have ended.
  ~RecordedWaits();
  RecordedWaits(const RecordedWaits&) = delete;
  RecordedWaits& operator=(const RecordedWaits&) = delete;

  // On the GPU, for the limits of this rank's waits (WaitLimit). The same as long as this object lives, so a captured graph
  // records in each replay, or, if no Tracer lived when the fabric was made, in none. Null: nobody traces.
  WaitLog* log();

 private:
  void stamp_clock(std::size_t which);
  void hand_over();

  Device device_;
  Tracer* tracer_;
  Buffer memory_;
};

}  // namespace heddle

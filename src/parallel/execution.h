// Where a step runs: one lane for computation, and one for exchanges with other ranks beside it.
#pragma once

#include <array>

#include "base/lane.h"
#include "base/stream.h"
#include "step/part.h"

namespace heddle {

// A lane beside that of computation, for steps in two parts. On the CPU a worker thread; on a GPU a stream of high
// priority, whose kernels take few SMs.
class TransferLane {
 public:
  // `of` is the lane's stream. On a GPU: what computation leaves of `whole` to transfers while a step is in two parts, at
  // most `most_sms` and half of them; 0: none, for steps in which nothing waits for a peer: both lanes have all SMs.
  TransferLane(Stream of, const Lane& whole, int most_sms);

  Lane lane() { return on_gpu() ? Lane(stream_, lane_sms_) : Lane(stream_); }
  Lane compute_of(const Lane& whole) const;  // without the SMs of transfers

  // What is enqueued on `compute` so far is what an exchange of the part needs.
  void computed(int part, const Lane& compute);
  // What is enqueued on this lane from now on comes behind that.
  void await_computed(int part);
  // What is enqueued on `compute` from now on comes behind what is enqueued on this lane so far.
  void hand_back(int part, const Lane& compute);

  Stream& stream() { return stream_; }

 private:
  bool on_gpu() const { return stream_.device().kind == DeviceKind::cuda; }

  Stream stream_;
  int transfer_sms_ = 0;  // that computation does without
  int lane_sms_ = 0;
  std::array<Event, kMostParts> computed_;
  std::array<Event, kMostParts> exchanged_;
};

struct Execution {
  // All on one lane. Not explicit, so that a lane can be passed where nothing overlaps.
  Execution(const Lane& lane) : compute(lane) {}  // NOLINT(google-explicit-constructor)
  Execution(const Lane& lane, TransferLane& beside) : compute(lane), transfers(&beside) {}

  Lane compute;
  TransferLane* transfers = nullptr;  // null: parts run one after the other. Outlives the step
};

}  // namespace heddle

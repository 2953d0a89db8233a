#include "parallel/execution.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace heddle {

TransferLane::TransferLane(Stream of, const Lane& whole, int most_sms)
    : stream_(std::move(of)),
      computed_{Event(stream_.device()), Event(stream_.device())},
      exchanged_{Event(stream_.device()), Event(stream_.device())} {
  if (!on_gpu()) return;
  require(most_sms >= 0, "transfers of {} SMs", most_sms);
  require(whole.num_sms >= 2, "a lane of {} SMs cannot give any to transfers", whole.num_sms);
  transfer_sms_ = std::min(most_sms, whole.num_sms / 2);
  lane_sms_ = transfer_sms_ > 0 ? transfer_sms_ : whole.num_sms;
}

Lane TransferLane::compute_of(const Lane& whole) const {
  Lane lane = whole;
  if (on_gpu()) lane.num_sms -= transfer_sms_;
  return lane;
}

void TransferLane::computed(int part, const Lane& compute) {
  computed_[static_cast<std::size_t>(part)].record(compute.stream);
}

void TransferLane::await_computed(int part) {
  stream_.wait(computed_[static_cast<std::size_t>(part)]);
}

void TransferLane::hand_back(int part, const Lane& compute) {
  Event& event = exchanged_[static_cast<std::size_t>(part)];
  event.record(stream_);
  compute.stream.wait(event);
}

}  // namespace heddle

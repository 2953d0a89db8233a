#include "fabric/nvlink/recorded_waits.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/copy.h"
#include "base/log.h"
#include "base/stream.h"
#include "fabric/nvlink/nvlink_kernels.h"

namespace heddle {
namespace {

void copy_now(Stream& stream, void* destination, const void* source, std::size_t bytes) {
  enqueue_copy(stream, destination, source, bytes);
  stream.synchronize();
}

GpuWait wait_of(const WaitStamp& stamp) {
  return {.rank = stamp.rank,
          .from = stamp.from,
          .block = static_cast<int>(stamp.block),
          .blocks = static_cast<int>(stamp.blocks),
          .begin = static_cast<std::int64_t>(stamp.begin),
          .end = static_cast<std::int64_t>(stamp.end),
          .name = std::string(stamp.tag.view())};
}

}  // namespace

RecordedWaits::RecordedWaits(Device device) : device_(device), tracer_(Tracer::active()) {
  if (tracer_ == nullptr) return;
  memory_ = Buffer(WaitLog::bytes_for(kMostWaits), device);
  const WaitLog empty{.capacity = kMostWaits};
  Stream stream(device);
  copy_now(stream, memory_.data(), &empty, sizeof empty);
  stamp_clock(0);
}

RecordedWaits::~RecordedWaits() {
  if (tracer_ == nullptr || Tracer::active() != tracer_) return;  // a fabric that outlives the trace has nobody to tell
  try {
    hand_over();
  } catch (const std::exception& error) {
    log_warning("trace: waits inside the kernels of a rank on {} are lost: {}", name_of(device_), error.what());
  }
}

WaitLog* RecordedWaits::log() {
  return reinterpret_cast<WaitLog*>(memory_.data());
}

void RecordedWaits::stamp_clock(std::size_t which) {
  Stream stream(device_);
  nvlink::launch_stamp_clock(stream, log()->clocks + which);
  stream.synchronize();
}

void RecordedWaits::hand_over() {
  stamp_clock(1);
  Stream stream(device_);
  WaitLog head;
  copy_now(stream, &head, memory_.data(), sizeof head);
  std::vector<WaitStamp> stamps(std::min(head.taken, kMostWaits));
  if (!stamps.empty()) copy_now(stream, stamps.data(), log()->stamps(), stamps.size() * sizeof(WaitStamp));
  GpuWaits waits{.device = device_.index, .waits = {}, .dropped = head.taken - stamps.size(), .clocks = {}};
  std::ranges::transform(stamps, std::back_inserter(waits.waits), wait_of);
  std::ranges::copy(head.clocks, std::back_inserter(waits.clocks));
  tracer_->add(std::move(waits));
}

}  // namespace heddle

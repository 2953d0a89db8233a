#include "base/tracer.h"

#include <chrono>
#include <utility>

#include "base/error.h"

namespace heddle {

std::atomic<Tracer*> Tracer::active_{nullptr};

std::int64_t trace_clock() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

TraceTrack*& track_of_this_thread() {
  thread_local TraceTrack* track = nullptr;
  return track;
}

void TraceTrack::begin_span(std::string_view name, int index) {
  has_marked_ = true;
  open_.push_back({name, index, trace_clock()});
}

void TraceTrack::end_span() {
  has_marked_ = true;
  if (open_.empty()) return;
  const Open ended = open_.back();
  open_.pop_back();
  add(TraceKind::span, ended.name, ended.index, ended.begin, trace_clock());
}

void TraceTrack::add_task(std::int64_t begin, std::int64_t end) {
  if (!std::exchange(has_marked_, false)) add(TraceKind::task, "task", -1, begin, end);
}

void TraceTrack::add(TraceKind kind, std::string_view name, int index, std::int64_t begin, std::int64_t end) {
  if (entries_.size() == kMostEntries) {
    ++dropped_;
    return;
  }
  entries_.push_back({kind, std::string(name), index, begin, end});
}

Tracer::Tracer() {
  Tracer* none = nullptr;
  require(active_.compare_exchange_strong(none, this), "a tracer records already");
}

Tracer::~Tracer() {
  active_.store(nullptr, std::memory_order_release);
}

TraceTrack& Tracer::new_track() {
  const std::lock_guard lock(mutex_);
  return *tracks_.emplace_back(std::make_unique<TraceTrack>());
}

void Tracer::add(GpuWaits waits) {
  const std::lock_guard lock(mutex_);
  gpu_waits_.push_back(std::move(waits));
}

TracedSection::TracedSection(std::string_view name)
    : name_(name), track_(track_of_this_thread()), begin_(track_ == nullptr ? 0 : trace_clock()) {}

TracedSection::~TracedSection() {
  if (track_ != nullptr) track_->add(TraceKind::span, name_, -1, begin_, trace_clock());
}

void TracedWait::begin() {
  track_ = track_of_this_thread();
  if (track_ != nullptr) begin_ = trace_clock();
}

void TracedWait::record() {
  track_->set_rank(rank_);
  track_->add(TraceKind::wait, name_, from_, begin_, trace_clock());
}

}  // namespace heddle

// Spans: named sections of a stream's work, recorded where the work is enqueued. The basis of tracing.
#pragma once

#include <chrono>
#include <string_view>

#include "base/error.h"
#include "base/stream.h"
#include "base/tracer.h"

namespace heddle {

// Receives the spans of the streams it is set on (Stream::set_span_sink), on the stream's worker thread. Names are
// literals that outlive the program. Spans of one stream nest.
class SpanSink {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~SpanSink() = default;
  virtual void begin(std::string_view name, int index, Clock::time_point time) = 0;
  virtual void end(std::string_view name, int index, Clock::time_point time) = 0;
};

// Marks the work enqueued on `stream` during its lifetime. Costs a comparison when the stream has no sink. `index`: a
// layer or rank, or -1. CUDA streams record no spans yet. A stream that a Tracer records (tracer.h) has a sink from the
// beginning, and its track gets the spans of every later sink, too.
class Span {
 public:
  Span(Stream& stream, std::string_view name, int index = -1)
      : stream_(stream),
        sink_(stream.device().kind == DeviceKind::cpu ? stream.span_sink() : nullptr),
        name_(name),
        index_(index) {
    mark(&SpanSink::begin);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    try {
      mark(&SpanSink::end);
    } catch (const Timeout&) {  // the queue is stuck; synchronize() reports that
    }
  }

 private:
  // Also after an error, so that each begin has an end.
  void mark(void (SpanSink::*call)(std::string_view, int, SpanSink::Clock::time_point)) {
    if (sink_ == nullptr) return;
    stream_.enqueue(
        [sink = sink_, call, name = name_, index = index_](ThreadPool&) {
          (sink->*call)(name, index, SpanSink::Clock::now());
          TraceTrack* const track = track_of_this_thread();
          if (track == nullptr) return;
          if (call == &SpanSink::begin)
            track->begin_span(name, index);
          else
            track->end_span();
        },
        AfterError::run);
  }

  Stream& stream_;
  SpanSink* sink_;
  std::string_view name_;
  int index_;
};

}  // namespace heddle

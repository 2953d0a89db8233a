// Records what the CPU streams of a process do while a Tracer lives: their tasks, the spans of trace.h, and waits for
// other ranks; and what kernels of GPUs say of their own waits for other ranks. `heddle trace` (apps/cli/trace.cpp) makes a picture and a report of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

enum class TraceKind : std::uint8_t {
  task,   // of a stream: the worker runs it from begin to end
  span,   // of trace.h
  wait,   // for another rank, inside a task; `index` is the rank
  event,  // for another stream, inside a task
};

// Times are nanoseconds of std::chrono::steady_clock, which the ranks of one machine share.
struct TraceEntry {
  TraceKind kind;
  std::string name;
  int index;
  std::int64_t begin, end;
};

// One stream's entries, written by its worker alone. Entries of spans are in order of their ends.
class TraceTrack {
 public:
  static constexpr std::size_t kMostEntries = std::size_t{1} << 22;

  void begin_span(std::string_view name, int index);
  void end_span();
  // Of a task that has run. One that began or ended a span is left out: it would lie across that span's edge.
  void add_task(std::int64_t begin, std::int64_t end);
  void add(TraceKind kind, std::string_view name, int index, std::int64_t begin, std::int64_t end);
  // Which rank's stream this is, as its waits say.
  void set_rank(int rank) { rank_ = rank; }

  int rank() const { return rank_; }  // -1: it has waited for nobody
  const std::vector<TraceEntry>& entries() const { return entries_; }
  std::size_t dropped() const { return dropped_; }  // beyond kMostEntries

 private:
  struct Open {
    std::string_view name;
    int index;
    std::int64_t begin;
  };

  int rank_ = -1;
  std::vector<Open> open_;
  bool has_marked_ = false;  // the running task has begun or ended a span
  std::vector<TraceEntry> entries_;
  std::size_t dropped_ = 0;
};

// A wait of one warp inside a kernel, for another rank. Times are of the GPU's own clock.
struct GpuWait {
  int rank, from;
  int block, blocks;  // of the kernel's grid
  std::int64_t begin, end;
  std::string name;
};

// Of one rank (device/wait_log.h, fabric/nvlink/recorded_waits.h).
struct GpuWaits {
  int device = 0;
  std::vector<GpuWait> waits;
  std::size_t dropped = 0;  // found no room
  // What the GPU's clock showed in each of this rank's kernels whose names end in kClockKernel, in order.
  std::vector<std::int64_t> clocks;
};
inline constexpr std::string_view kClockKernel = "stamp_clock";

// At most one lives at a time (InvalidArgument otherwise). Streams and fabrics that are made meanwhile record, and must
// end before it does; tracks may be read when those streams are gone or synchronized, waits when the fabrics are gone.
class Tracer {
 public:
  Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  ~Tracer();

  // Of a new stream; lives as long as the tracer.
  TraceTrack& new_track();
  const std::vector<std::unique_ptr<TraceTrack>>& tracks() const { return tracks_; }

  void add(GpuWaits waits);
  const std::vector<GpuWaits>& gpu_waits() const { return gpu_waits_; }

  static Tracer* active() { return active_.load(std::memory_order_acquire); }

 private:
  static std::atomic<Tracer*> active_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<TraceTrack>> tracks_;
  std::vector<GpuWaits> gpu_waits_;
};

// The track of the stream whose task this thread runs; null: none records.
TraceTrack*& track_of_this_thread();

std::int64_t trace_clock();

// A section of a task, recorded as a span. `name` outlives this object.
class TracedSection {
 public:
  explicit TracedSection(std::string_view name);
  TracedSection(const TracedSection&) = delete;
  TracedSection& operator=(const TracedSection&) = delete;
  ~TracedSection();

 private:
  std::string_view name_;
  TraceTrack* track_;
  std::int64_t begin_;
};

// A wait of this thread that may turn out to be none: begun at the first look that found nothing, recorded at its end.
class TracedWait {
 public:
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;
  // `rank` waits for `from`. `name` outlives this object.
  TracedWait(int rank, int from, const char* name) : rank_(rank), from_(from), name_(name) {}
  ~TracedWait() { end(); }

  void begin();
  void end() {
    if (track_ != nullptr) record();
    track_ = nullptr;
  }

 private:
  void record();

  int rank_, from_;
  const char* name_;
  TraceTrack* track_ = nullptr;
  std::int64_t begin_ = 0;
};

}  // namespace heddle

#include "cli/perfetto_json.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "cli/gpu_report.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

const char* category_of(TraceKind kind) {
  switch (kind) {
    case TraceKind::task:
      return "task";
    case TraceKind::span:
      return "span";
    case TraceKind::wait:
      return "wait";
    case TraceKind::event:
      return "event";
  }
  return "?";
}

constexpr int kGpuProcess = 1000;  // behind all ranks

// One stream of a GPU, as a thread.
class GpuThread {
 public:
  GpuThread(ordered_json& events, const GpuTrack& track, std::int64_t start)
      : events_(events), process_(kGpuProcess + track.device), thread_(track.stream), start_(start) {
    tell_name("process_name", fmt::format("GPU {}", track.device));
    tell_name("thread_name", fmt::format("stream {}", track.stream));
  }

  // The next one. A kernel that begins while the one ahead runs (PDL) is drawn from that one's end, since what is in one thread must
  // nest.
  void add(const GpuEntry& entry) {
    const std::int64_t begin = std::max(entry.begin, end_);
    end_ = std::max(entry.end, end_);
    ordered_json args = {{"us", microseconds(entry.end - entry.begin)}};
    if (entry.waited > 0) args["of which blocks waited, us"] = microseconds(entry.waited);
    add_slice(is_transfer_kernel(entry.name) ? "transfer" : "kernel", entry.name, begin, end_, std::move(args));
    add_waits(entry, begin);
  }

 private:
  void tell_name(const char* of, const std::string& name) {
    events_.push_back({{"ph", "M"}, {"pid", process_}, {"tid", thread_}, {"name", of}, {"args", {{"name", name}}}});
  }

  void add_slice(const char* category, const std::string& name, std::int64_t begin, std::int64_t end,
                 ordered_json args) {
    events_.push_back({{"ph", "X"},
                       {"pid", process_},
                       {"tid", thread_},
                       {"cat", category},
                       {"name", name},
                       {"ts", microseconds(begin - start_)},
                       {"dur", microseconds(std::max<std::int64_t>(end - begin, 0))},
                       {"args", std::move(args)}});
  }

  // A wait that began within another and ended behind it is drawn from that one's end, and those that follow not before it.
  void add_waits(const GpuEntry& kernel, std::int64_t kernel_begin) {
    std::vector<std::int64_t> ends;  // of the slices that are open, the innermost last
    std::int64_t begin = kernel_begin;
    for (const PeerWaits& waits : kernel.waits) {
      begin = std::max(begin, waits.begin);
      while (!ends.empty() && (ends.back() <= begin || ends.back() < waits.end)) {
        begin = std::max(begin, ends.back());
        ends.pop_back();
      }
      ends.push_back(std::max(waits.end, begin));
      add_slice("wait", waits.name, begin, waits.end,
                {{"rank", waits.rank},
                 {"for rank", waits.from},
                 {"blocks", waits.blocks},
                 {"blocks of the kernel", kernel.blocks},
                 {"us from first to last", microseconds(waits.end - waits.begin)},
                 {"mean us of a block", microseconds(waits.sum) / waits.blocks},
                 {"longest us of a block", microseconds(waits.longest)}});
    }
  }

  ordered_json& events_;
  int process_;
  std::uint32_t thread_;
  std::int64_t start_;
  std::int64_t end_ = 0;  // of what is drawn
};

std::int64_t start_of(const std::vector<std::unique_ptr<TraceTrack>>& tracks, const std::vector<GpuTrack>& gpu_tracks) {
  std::int64_t start = INT64_MAX;
  for (const auto& track : tracks)
    for (const TraceEntry& entry : track->entries()) start = std::min(start, entry.begin);
  for (const GpuTrack& track : gpu_tracks)
    for (const GpuEntry& entry : track.entries) start = std::min(start, entry.begin);
  return start;
}

}  // namespace

ordered_json perfetto_json(const std::vector<std::unique_ptr<TraceTrack>>& tracks,
                           const std::vector<GpuTrack>& gpu_tracks) {
  const std::int64_t start = start_of(tracks, gpu_tracks);
  ordered_json events = ordered_json::array();
  std::map<int, int> streams;  // of each rank so far
  for (const auto& track : tracks) {
    if (track->entries().empty()) continue;
    const int rank = std::max(0, track->rank()), stream = streams[rank]++;
    if (stream == 0)
      events.push_back(
          {{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    events.push_back({{"ph", "M"},
                      {"pid", rank},
                      {"tid", stream},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("stream {}", stream)}}}});
    for (const TraceEntry& entry : track->entries()) {
      ordered_json event = {{"ph", "X"},
                            {"pid", rank},
                            {"tid", stream},
                            {"cat", category_of(entry.kind)},
                            {"name", entry.name},
                            {"ts", microseconds(entry.begin - start)},
                            {"dur", microseconds(entry.end - entry.begin)}};
      if (entry.kind == TraceKind::wait)
        event["args"] = {{"for rank", entry.index}};
      else if (entry.index >= 0)
        event["args"] = {{"index", entry.index}};
      events.push_back(std::move(event));
    }
  }
  for (const GpuTrack& track : gpu_tracks) {
    GpuThread thread(events, track, start);
    for (const GpuEntry& entry : track.entries) thread.add(entry);
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
}

}  // namespace heddle

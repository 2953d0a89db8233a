#include "base/trace_report.h"

#include <algorithm>
#include <array>
#include <utility>

namespace heddle {
namespace {

struct Interval {
  std::int64_t begin, end;
};
using Intervals = std::vector<Interval>;  // in order, without overlap

Intervals united(Intervals all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals out;
  for (const Interval& one : all) {
    if (one.end <= one.begin) continue;
    if (!out.empty() && one.begin <= out.back().end)
      out.back().end = std::max(out.back().end, one.end);
    else
      out.push_back(one);
  }
  return out;
}

template <class Wanted>
Intervals intervals_of(const TraceTrack& track, const Wanted& wanted) {
  Intervals all;
  for (const TraceEntry& entry : track.entries())
    if (wanted(entry)) all.push_back({entry.begin, entry.end});
  return united(std::move(all));
}

// What is in both.
Intervals common(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.begin < both.end) out.push_back(both);
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return out;
}

std::int64_t length(const Intervals& all) {
  std::int64_t sum = 0;
  for (const Interval& one : all) sum += one.end - one.begin;
  return sum;
}

bool is_step(const TraceEntry& entry) {
  return entry.kind == TraceKind::span && entry.name == "step";
}

Intervals steps_of(const TraceTrack& track) {
  return intervals_of(track, is_step);
}

// Spans other than steps that lie in no other such span, in order. Spans of a track nest.
std::vector<const TraceEntry*> outermost_spans(const TraceTrack& track) {
  std::vector<const TraceEntry*> all;
  for (const TraceEntry& entry : track.entries())
    if (entry.kind == TraceKind::span && !is_step(entry)) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](const TraceEntry* a, const TraceEntry* b) {
    return a->begin < b->begin || (a->begin == b->begin && a->end > b->end);
  });
  std::vector<const TraceEntry*> outermost;
  for (const TraceEntry* one : all)
    if (outermost.empty() || one->end > outermost.back()->end) outermost.push_back(one);
  return outermost;
}

// The steps by their label, in the order in which labels appear.
struct LabelledSteps {
  std::string label;
  Intervals steps;
};
std::vector<LabelledSteps> labelled_steps(const TraceTrack& track) {
  const std::vector<const TraceEntry*> outermost = outermost_spans(track);
  const auto label_of = [&](const Interval& step) {
    const auto behind = std::upper_bound(outermost.begin(), outermost.end(), step.begin,
                                         [](std::int64_t time, const TraceEntry* span) { return time < span->begin; });
    return behind == outermost.begin() || (*(behind - 1))->end < step.end ? std::string() : (*(behind - 1))->name;
  };
  std::vector<LabelledSteps> all;
  for (const Interval& step : steps_of(track)) {
    std::string label = label_of(step);
    auto place = std::find_if(all.begin(), all.end(), [&](const LabelledSteps& one) { return one.label == label; });
    if (place == all.end()) place = all.insert(all.end(), {std::move(label), {}});
    place->steps.push_back(step);
  }
  return all;
}

bool is_handover(const TraceEntry& entry) {
  return entry.kind == TraceKind::span && entry.name == kHandover;
}

// Seconds, in these steps.
double handing_over(const TraceTrack& track, const Intervals& steps, const HandoverTime& time) {
  double sum = 0;
  for (const TraceEntry& entry : track.entries()) {
    if (!is_handover(entry)) continue;
    const auto behind = std::upper_bound(steps.begin(), steps.end(), entry.begin,
                                         [](std::int64_t at, const Interval& step) { return at < step.begin; });
    if (behind != steps.begin() && entry.begin < (behind - 1)->end) sum += time(std::int64_t{1024} * entry.index);
  }
  return sum;
}

Intervals transfers_of(const TraceTrack& track) {
  return intervals_of(track, [](const TraceEntry& e) {
    return e.kind == TraceKind::event || (e.kind == TraceKind::span && is_transfer(e.name));
  });
}

Intervals waits_of(const TraceTrack& track) {
  return intervals_of(track, [](const TraceEntry& e) { return e.kind == TraceKind::wait; });
}

}  // namespace

bool is_transfer(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{"transfer",   "all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all", "broadcast",  "barrier",    "all_reduce_norm"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<StepShares> step_shares(const std::vector<std::unique_ptr<TraceTrack>>& tracks,
                                    const HandoverTime& handover_time) {
  constexpr double kSecond = 1e-9;
  std::vector<StepShares> all;
  for (const auto& track : tracks) {
    const Intervals tasks = intervals_of(*track, [](const TraceEntry& e) { return e.kind == TraceKind::task; });
    for (const auto& [label, steps] : labelled_steps(*track)) {
      const Intervals busy = common(steps, tasks);
      const Intervals waits = common(busy, waits_of(*track));
      const Intervals moving = common(busy, transfers_of(*track));
      StepShares shares{.rank = std::max(0, track->rank()), .label = label, .steps = static_cast<int>(steps.size())};
      shares.step_seconds = static_cast<double>(length(steps)) * kSecond;
      shares.synchronous = static_cast<double>(length(waits)) * kSecond;
      shares.transfer = static_cast<double>(length(moving) - length(common(moving, waits))) * kSecond;
      shares.launch = static_cast<double>(length(steps) - length(busy)) * kSecond;
      shares.compute = static_cast<double>(length(busy)) * kSecond - shares.synchronous - shares.transfer;
      if (handover_time)
        shares.inter_kernel = std::min(handing_over(*track, steps, handover_time), shares.compute + shares.transfer);
      for (const auto& other : tracks) {
        if (other == track || other->rank() != track->rank() || !steps_of(*other).empty()) continue;
        const Intervals hidden = common(steps, transfers_of(*other));
        shares.hidden_transfer +=
            static_cast<double>(length(hidden) - length(common(hidden, waits_of(*other)))) * kSecond;
      }
      all.push_back(std::move(shares));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const StepShares& a, const StepShares& b) { return a.rank < b.rank; });
  return all;
}

}  // namespace heddle

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

// The steps by their label, in the order in which labels appear.
struct LabelledSteps {
  std::string label;
  Intervals steps;
};
std::vector<LabelledSteps> labelled_steps(const TraceTrack& track) {
  const auto label_of = [&](const Interval& step) {
    const TraceEntry* around = nullptr;
    for (const TraceEntry& e : track.entries())
      if (e.kind == TraceKind::span && !is_step(e) && e.begin <= step.begin && step.end <= e.end &&
          (around == nullptr || e.end - e.begin > around->end - around->begin))
        around = &e;
    return around == nullptr ? std::string() : around->name;
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

// Bytes, in these steps.
double handed_over(const TraceTrack& track, const Intervals& steps) {
  double sum = 0;
  for (const TraceEntry& entry : track.entries())
    if (is_handover(entry))
      for (const Interval& step : steps)
        if (step.begin <= entry.begin && entry.begin < step.end) sum += 1024.0 * entry.index;
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
  constexpr std::array<std::string_view, 7> kNames{"transfer",   "all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all", "broadcast",  "barrier"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool has_handovers(const std::vector<std::unique_ptr<TraceTrack>>& tracks) {
  return std::any_of(tracks.begin(), tracks.end(), [](const auto& track) {
    return std::any_of(track->entries().begin(), track->entries().end(), is_handover);
  });
}

std::vector<StepShares> step_shares(const std::vector<std::unique_ptr<TraceTrack>>& tracks, double bytes_per_second) {
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
      if (bytes_per_second > 0) shares.inter_kernel = handed_over(*track, steps) / bytes_per_second;
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

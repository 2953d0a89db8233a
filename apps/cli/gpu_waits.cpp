#include "cli/gpu_waits.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace heddle {
namespace {

// By how much a wait may lie outside of its kernel, in nanoseconds: the clocks are aligned by kernels of some microseconds.
constexpr std::int64_t kSlack = 5000;

// From a GPU's clock to that of its tracks. Between two samples the difference is interpolated, as the clocks drift.
class ClockDifference {
 public:
  // The k-th sample was taken within the k-th of `kernels`. Both are in order, and there is at least one.
  ClockDifference(const std::vector<std::int64_t>& samples, const std::vector<GpuEntry>& kernels) : samples_(samples) {
    for (std::size_t i = 0; i < samples.size(); ++i)
      differences_.push_back((kernels[i].begin + kernels[i].end) / 2 - samples[i]);
  }

  std::int64_t trace_time(std::int64_t time) const {
    const auto after = static_cast<std::size_t>(std::ranges::upper_bound(samples_, time) - samples_.begin());
    if (after == 0) return time + differences_.front();
    if (after == samples_.size()) return time + differences_.back();
    const std::int64_t passed = time - samples_[after - 1], between = samples_[after] - samples_[after - 1];
    const double share = static_cast<double>(passed) / static_cast<double>(between);
    const auto drift = static_cast<double>(differences_[after] - differences_[after - 1]);
    return time + differences_[after - 1] + std::llround(share * drift);
  }

 private:
  std::vector<std::int64_t> samples_, differences_;
};

bool is_clock_kernel(const GpuEntry& entry) {
  return entry.name.ends_with(kClockKernel);
}

std::vector<GpuEntry> take_clock_kernels(std::vector<GpuTrack>& tracks, int device) {
  std::vector<GpuEntry> taken;
  for (GpuTrack& track : tracks) {
    if (track.device != device) continue;
    std::ranges::copy_if(track.entries, std::back_inserter(taken), is_clock_kernel);
    std::erase_if(track.entries, is_clock_kernel);
  }
  std::ranges::sort(taken, {}, &GpuEntry::begin);
  return taken;
}

// Nothing where the samples and the kernels do not belong together, for CUPTI may have dropped one.
std::optional<ClockDifference> clock_difference(const std::vector<GpuEntry>& kernels, const std::vector<GpuWaits>& all,
                                                int device) {
  std::vector<std::int64_t> samples;
  for (const GpuWaits& of_rank : all)
    if (of_rank.device == device) samples.insert(samples.end(), of_rank.clocks.begin(), of_rank.clocks.end());
  std::ranges::sort(samples);
  if (samples.empty() || samples.size() != kernels.size()) return {};
  return ClockDifference(samples, kernels);
}

// Finds the entries of a track that a time touches.
class TrackIndex {
 public:
  explicit TrackIndex(GpuTrack& track) : track_(track) {
    std::int64_t last = INT64_MIN;
    for (const GpuEntry& entry : track.entries) ends_.push_back(last = std::max(last, entry.end));
  }

  struct Found {
    GpuEntry* entry = nullptr;  // null: none
    std::int64_t overlap = 0;   // negative: so far apart
  };
  // The one that has as many blocks and overlaps the wait most.
  Found best_for(const GpuWait& wait) const {
    Found best;
    const auto behind = std::ranges::upper_bound(track_.entries, wait.end + kSlack, {}, &GpuEntry::begin);
    for (auto i = behind - track_.entries.begin() - 1;
         i >= 0 && ends_[static_cast<std::size_t>(i)] >= wait.begin - kSlack; --i) {
      GpuEntry& entry = track_.entries[static_cast<std::size_t>(i)];
      const std::int64_t overlap = std::min(wait.end, entry.end) - std::max(wait.begin, entry.begin);
      if (entry.blocks == wait.blocks && overlap >= -kSlack && (best.entry == nullptr || overlap > best.overlap))
        best = {&entry, overlap};
    }
    return best;
  }

 private:
  GpuTrack& track_;
  std::vector<std::int64_t> ends_;  // the latest of all entries so far
};

struct Placed {
  GpuWait wait;                          // in the trace's time
  std::vector<TrackIndex::Found> found;  // by track
};

// Those of one rank, with what each track has for them.
std::vector<Placed> with_candidates(const GpuWaits& waits, const ClockDifference& clock,
                                    const std::vector<TrackIndex>& tracks) {
  std::vector<Placed> all;
  for (const GpuWait& one : waits.waits) {
    Placed placed{.wait = one, .found = {}};
    placed.wait.begin = clock.trace_time(one.begin);
    placed.wait.end = one.end == 0 ? placed.wait.begin : clock.trace_time(one.end);
    for (const TrackIndex& track : tracks) placed.found.push_back(track.best_for(placed.wait));
    if (one.end == 0) placed.wait.end = INT64_MAX;  // cut at the kernel's end
    all.push_back(std::move(placed));
  }
  return all;
}

// How long the rank's waits overlap kernels of each track.
std::vector<std::int64_t> overlaps(const std::vector<Placed>& all, std::size_t tracks) {
  std::vector<std::int64_t> sums(tracks);
  for (const Placed& one : all)
    for (std::size_t t = 0; t < tracks; ++t) sums[t] += std::max<std::int64_t>(one.found[t].overlap, 0);
  return sums;
}

GpuEntry* kernel_of(const Placed& placed, const std::vector<std::int64_t>& of_tracks) {
  std::optional<std::size_t> best;
  const auto rating = [&](std::size_t t) { return std::pair(placed.found[t].overlap, of_tracks[t]); };
  for (std::size_t t = 0; t < placed.found.size(); ++t)
    if (placed.found[t].entry != nullptr && (!best || rating(t) > rating(*best))) best = t;
  return best ? placed.found[*best].entry : nullptr;
}

// Time in which each block waited; where several of its waits overlap, it counts once.
std::map<int, std::int64_t> waited_by_block(std::vector<GpuWait> waits) {
  std::ranges::sort(waits, {}, &GpuWait::begin);
  std::map<int, std::pair<std::int64_t, std::int64_t>> sums;  // with the end so far
  for (const GpuWait& one : waits) {
    auto& [sum, end] = sums.try_emplace(one.block, 0, INT64_MIN).first->second;
    sum += std::max<std::int64_t>(one.end - std::max(one.begin, end), 0);
    end = std::max(end, one.end);
  }
  std::map<int, std::int64_t> by_block;
  for (const auto& [block, of_block] : sums) by_block[block] = of_block.first;
  return by_block;
}

std::int64_t sum_of(const std::map<int, std::int64_t>& by_block) {
  std::int64_t sum = 0;
  for (const auto& [block, waited] : by_block) sum += waited;
  return sum;
}

PeerWaits put_together(const std::vector<GpuWait>& waits) {
  const GpuWait& any = waits.front();
  const std::map<int, std::int64_t> by_block = waited_by_block(waits);
  PeerWaits all{.name = any.name,
                .rank = any.rank,
                .from = any.from,
                .begin = std::ranges::min(waits, {}, &GpuWait::begin).begin,
                .end = std::ranges::max(waits, {}, &GpuWait::end).end,
                .blocks = static_cast<int>(by_block.size()),
                .sum = sum_of(by_block),
                .longest = 0};
  for (const auto& [block, waited] : by_block) all.longest = std::max(all.longest, waited);
  return all;
}

void add_to(GpuEntry& kernel, std::vector<GpuWait> waits) {
  std::map<std::tuple<int, int, std::string>, std::vector<GpuWait>> by_peer;
  for (GpuWait& one : waits) {
    one.begin = std::clamp(one.begin, kernel.begin, kernel.end);
    one.end = std::clamp(one.end, one.begin, kernel.end);
    by_peer[{one.rank, one.from, one.name}].push_back(one);
  }
  for (const auto& [peer, of_peer] : by_peer) kernel.waits.push_back(put_together(of_peer));
  std::ranges::stable_sort(kernel.waits, {}, [](const PeerWaits& one) { return std::pair(one.begin, -one.end); });
  kernel.waited = sum_of(waited_by_block(std::move(waits))) / kernel.blocks;
}

}  // namespace

std::size_t place_waits(std::vector<GpuTrack>& tracks, const std::vector<GpuWaits>& waits) {
  std::size_t without = 0;
  std::map<int, std::vector<const GpuWaits*>> by_device;
  for (const GpuWaits& of_rank : waits) by_device[of_rank.device].push_back(&of_rank);
  for (const auto& [device, ranks] : by_device) {
    const std::optional<ClockDifference> clock = clock_difference(take_clock_kernels(tracks, device), waits, device);
    std::vector<TrackIndex> index;
    for (GpuTrack& track : tracks)
      if (clock && track.device == device) index.emplace_back(track);
    std::map<GpuEntry*, std::vector<GpuWait>> by_kernel;
    for (const GpuWaits* const of_rank : ranks) {
      if (!clock) {
        without += of_rank->waits.size();
        continue;
      }
      std::vector<Placed> all = with_candidates(*of_rank, *clock, index);
      const std::vector<std::int64_t> of_tracks = overlaps(all, index.size());
      for (Placed& one : all) {
        GpuEntry* const kernel = kernel_of(one, of_tracks);
        if (kernel == nullptr)
          ++without;
        else
          by_kernel[kernel].push_back(std::move(one.wait));
      }
    }
    for (auto& [kernel, of_kernel] : by_kernel) add_to(*kernel, std::move(of_kernel));
  }
  std::erase_if(tracks, [](const GpuTrack& track) { return track.entries.empty(); });
  return without;
}

}  // namespace heddle

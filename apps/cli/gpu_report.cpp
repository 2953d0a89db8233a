#include "cli/gpu_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace heddle {
namespace {

struct Border {
  std::int64_t time;
  double works;  // the share of its time in which the kernel's blocks do not wait
  bool transfers, begins;
};

double seconds_of(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

// Adds what runs between neighbouring borders.
GpuShares shares_of(int device, std::vector<Border> borders) {
  GpuShares shares{.device = device, .kernels = static_cast<int>(borders.size() / 2)};
  std::ranges::sort(borders, {}, [](const Border& one) { return std::pair(one.time, !one.begins); });
  std::multiset<double> computing, transferring;  // how much each kernel works that runs now
  const auto most = [](const std::multiset<double>& works) { return works.empty() ? 0 : *works.rbegin(); };
  for (std::size_t i = 0; i < borders.size(); ++i) {
    if (i > 0) {
      const double passed = seconds_of(borders[i].time - borders[i - 1].time);
      shares.seconds += passed;
      const double compute = most(computing);
      const double transfer = std::min(most(transferring), 1 - compute);
      const bool is_idle = computing.empty() && transferring.empty();
      shares.compute += passed * compute;
      shares.transfer += passed * transfer;
      (is_idle ? shares.idle : shares.synchronous) += passed * (1 - compute - transfer);
      shares.hidden_transfer += passed * (most(transferring) - transfer);
    }
    std::multiset<double>& running = borders[i].transfers ? transferring : computing;
    if (borders[i].begins)
      running.insert(borders[i].works);
    else
      running.erase(running.find(borders[i].works));
  }
  return shares;
}

}  // namespace

bool is_transfer_kernel(std::string_view name) {
  constexpr std::array<std::string_view, 14> kNames = {
      "run_collective", "run_norm",         "reduce_small_m", "gather_small_m",   "send_tiles",
      "copy_kernel",    "store_kernel",     "add_kernel",     "fence_kernel",     "wait_kernel",
      "run_body",       "wait_next_kernel", "barrier_kernel", "copy between GPUs"};
  if (name.starts_with("ncclDevKernel")) return true;
  std::string_view own = name.substr(0, name.find('<'));
  if (const std::size_t at = own.rfind("::"); at != std::string_view::npos) own.remove_prefix(at + 2);
  return std::ranges::find(kNames, own) != kNames.end();
}

std::vector<GpuShares> gpu_shares(const std::vector<GpuTrack>& tracks) {
  std::map<int, std::vector<Border>> borders;
  for (const GpuTrack& track : tracks)
    for (const GpuEntry& entry : track.entries) {
      const bool transfers = is_transfer_kernel(entry.name);
      const std::int64_t lasts = entry.end - entry.begin;
      const double works = lasts > 0 ? 1 - static_cast<double>(entry.waited) / static_cast<double>(lasts) : 1;
      borders[track.device].push_back({entry.begin, works, transfers, true});
      borders[track.device].push_back({entry.end, works, transfers, false});
    }
  std::vector<GpuShares> all;
  for (auto& [device, of_device] : borders) all.push_back(shares_of(device, std::move(of_device)));
  return all;
}

std::vector<KernelTime> kernel_times(const std::vector<GpuTrack>& tracks) {
  std::map<std::pair<int, std::string>, KernelTime> by_name;
  for (const GpuTrack& track : tracks)
    for (const GpuEntry& entry : track.entries) {
      KernelTime& one = by_name[{track.device, entry.name}];
      one.device = track.device;
      one.name = entry.name;
      ++one.calls;
      one.seconds += seconds_of(entry.end - entry.begin);
      one.waited += seconds_of(entry.waited);
    }
  std::vector<KernelTime> all;
  all.reserve(by_name.size());
  for (auto& [place, one] : by_name) all.push_back(std::move(one));
  std::ranges::stable_sort(all, std::ranges::greater{}, &KernelTime::seconds);
  return all;
}

std::vector<WaitTime> wait_times(const std::vector<GpuTrack>& tracks) {
  std::map<std::tuple<int, int, int, std::string, std::string>, WaitTime> all;
  for (const GpuTrack& track : tracks)
    for (const GpuEntry& entry : track.entries)
      for (const PeerWaits& waits : entry.waits) {
        WaitTime& one = all[{waits.rank, waits.from, track.device, entry.name, waits.name}];
        one.device = track.device;
        one.rank = waits.rank;
        one.from = waits.from;
        one.kernel = entry.name;
        one.name = waits.name;
        ++one.calls;
        one.blocks += waits.blocks;
        one.seconds += seconds_of(waits.sum) / waits.blocks;
        one.longest = std::max(one.longest, seconds_of(waits.longest));
      }
  std::vector<WaitTime> times;
  times.reserve(all.size());
  for (auto& [place, one] : all) {
    one.blocks /= one.calls;
    times.push_back(std::move(one));
  }
  std::ranges::stable_sort(times, [](const WaitTime& a, const WaitTime& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.seconds > b.seconds;
  });
  return times;
}

}  // namespace heddle

#include "cli/gpu_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace heddle {
namespace {

struct Border {
  std::int64_t time;
  bool transfers, begins;
};

double seconds_of(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

// Adds what runs between neighbouring borders.
GpuShares shares_of(int device, std::vector<Border> borders) {
  GpuShares shares{.device = device, .kernels = static_cast<int>(borders.size() / 2)};
  std::ranges::sort(borders, {}, &Border::time);
  int computing = 0, transferring = 0;
  for (std::size_t i = 0; i < borders.size(); ++i) {
    if (i > 0) {
      const double passed = seconds_of(borders[i].time - borders[i - 1].time);
      shares.seconds += passed;
      (computing > 0 ? shares.compute : transferring > 0 ? shares.transfer : shares.idle) += passed;
      if (computing > 0 && transferring > 0) shares.hidden_transfer += passed;
    }
    (borders[i].transfers ? transferring : computing) += borders[i].begins ? 1 : -1;
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
    for (const TraceEntry& entry : track.entries) {
      const bool transfers = is_transfer_kernel(entry.name);
      borders[track.device].push_back({entry.begin, transfers, true});
      borders[track.device].push_back({entry.end, transfers, false});
    }
  std::vector<GpuShares> all;
  for (auto& [device, of_device] : borders) all.push_back(shares_of(device, std::move(of_device)));
  return all;
}

std::vector<KernelTime> kernel_times(const std::vector<GpuTrack>& tracks) {
  std::map<std::pair<int, std::string>, KernelTime> by_name;
  for (const GpuTrack& track : tracks)
    for (const TraceEntry& entry : track.entries) {
      KernelTime& one = by_name[{track.device, entry.name}];
      one.device = track.device;
      one.name = entry.name;
      ++one.calls;
      one.seconds += seconds_of(entry.end - entry.begin);
    }
  std::vector<KernelTime> all;
  all.reserve(by_name.size());
  for (auto& [place, one] : by_name) all.push_back(std::move(one));
  std::ranges::stable_sort(all, std::ranges::greater{}, &KernelTime::seconds);
  return all;
}

}  // namespace heddle

#include "machine/device_choice.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kComputeMajor = 9;  // sm_90a: its kernels run on no earlier and no later architecture
constexpr int kComputeMinor = 0;

std::string gpu_text(const GpuDiscovery& found, int index) {
  return fmt::format("cuda:{} ({})", index, found.gpus[static_cast<std::size_t>(index)].name);
}

std::string count_text(const GpuDiscovery& found) {
  return found.gpus.size() == 1 ? "is one GPU" : fmt::format("are {} GPUs", found.gpus.size());
}

// "cuda:0,cuda:0", for ranks that share one.
std::string shared_gpu(int ranks) {
  std::string names = "cuda:0";
  for (int rank = 1; rank < ranks; ++rank) names += ",cuda:0";
  return names;
}

std::vector<Device> first_gpus(int count) {
  std::vector<Device> devices;
  devices.reserve(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) devices.push_back({DeviceKind::cuda, index});
  return devices;
}

void require_usable(std::string_view asked, int index, const GpuDiscovery& found) {
  if (const std::string reason = why_unusable(found, index); !reason.empty())
    throw_error<Failure>("--device {}: {}; --device cpu works", asked, reason);
}

}  // namespace

std::optional<Device> device_named(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == "cpu") return Device{};
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  Device device{.kind = DeviceKind::cuda};
  if (name.empty()) return device;
  if (!name.starts_with(':')) return std::nullopt;
  name.remove_prefix(1);
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), device.index);
  if (error != std::errc() || end != name.data() + name.size() || device.index < 0) return std::nullopt;
  return device;
}

std::string why_unusable(const GpuDiscovery& found, int index) {
  const GpuInfo& gpu = found.gpus.at(static_cast<std::size_t>(index));
  if (gpu.compute_major == kComputeMajor && gpu.compute_minor == kComputeMinor) return {};
  if (gpu.compute_major == 0) return fmt::format("{} cannot be asked what it is", gpu_text(found, index));
  return fmt::format("{} has compute capability {}.{}, and Heddle's kernels are for {}.{} (H100, H200)",
                     gpu_text(found, index), gpu.compute_major, gpu.compute_minor, kComputeMajor, kComputeMinor);
}

DeviceChoice choose_device(std::optional<Device> asked, const GpuDiscovery& found, DoesNotFit does_not_fit) {
  const auto why_not = [&](int index) {
    std::string reason = why_unusable(found, index);
    return reason.empty() ? does_not_fit({DeviceKind::cuda, index}) : reason;
  };
  const int count = static_cast<int>(found.gpus.size());
  if (asked && asked->kind == DeviceKind::cpu) return {.device = *asked, .reason = "asked for"};
  if (asked) {
    if (count == 0) throw_error<Failure>("--device {}: {}; --device cpu works", name_of(*asked), found.why_none);
    if (asked->index >= count)
      throw_error<InputError>("--device {}: there {} here, counted from cuda:0", name_of(*asked), count_text(found));
    if (const std::string reason = why_not(asked->index); !reason.empty())
      throw_error<Failure>("--device {}: {}; --device cpu works", name_of(*asked), reason);
    return {.device = *asked, .reason = "asked for"};
  }
  if (count == 0) return {.device = {}, .reason = found.why_none};
  std::string first_reason;
  for (int index = 0; index < count; ++index) {
    const std::string reason = why_not(index);
    if (reason.empty()) return {.device = {DeviceKind::cuda, index}, .reason = found.gpus[index].name};
    if (first_reason.empty()) first_reason = reason;
  }
  return {.device = {}, .reason = first_reason};
}

std::vector<Device> devices_named(std::string_view names) {
  std::vector<Device> devices;
  while (true) {
    const std::size_t comma = names.find(',');
    const std::optional<Device> device = device_named(names.substr(0, comma));
    if (!device) return {};
    devices.push_back(*device);
    if (comma == std::string_view::npos) return devices;
    names.remove_prefix(comma + 1);
  }
}

RankDevices choose_rank_devices(std::string_view asked, int ranks, const GpuDiscovery& found) {
  const auto count = static_cast<int>(found.gpus.size());
  if (asked == "cpu") return {std::vector<Device>(static_cast<std::size_t>(ranks)), "asked for"};
  if (asked.empty()) {
    int usable = 0;
    while (usable < std::min(count, ranks) && why_unusable(found, usable).empty()) ++usable;
    if (usable == ranks) return {first_gpus(ranks), fmt::format("{} of {} GPUs", ranks, count)};
    std::string reason = count == 0 ? found.why_none
                                    : fmt::format("there {} here; ranks can share it: --device {}", count_text(found),
                                                  shared_gpu(ranks));
    return {std::vector<Device>(static_cast<std::size_t>(ranks)), std::move(reason)};
  }
  std::vector<Device> devices = devices_named(asked);
  const auto is_gpu = [](const Device& device) { return device.kind == DeviceKind::cuda; };
  if (asked != "cuda") {
    if (devices.size() == 1)  // "cpu" alone is above
      throw_error<InputError>("--device {} for {} ranks: name a GPU for each rank, or for ranks that share one {}",
                              asked, ranks, shared_gpu(ranks));
    if (devices.size() != static_cast<std::size_t>(ranks))
      throw_error<InputError>("--device {} for {} ranks: that names {} devices; name one for each rank", asked, ranks,
                              devices.size());
    if (std::ranges::none_of(devices, is_gpu)) return {std::move(devices), "asked for"};
    if (!std::ranges::all_of(devices, is_gpu))
      throw_error<InputError>("--device {}: the ranks of a model are all on the CPU, or all on GPUs", asked);
  }
  if (count == 0) throw_error<Failure>("--device {}: {}; --device cpu works", asked, found.why_none);
  if (asked == "cuda") {
    if (count < ranks)
      throw_error<InputError>("--device cuda for {} ranks: there {} here; ranks can share one: --device {}", ranks,
                              count_text(found), shared_gpu(ranks));
    devices = first_gpus(ranks);
  }
  for (const Device& device : devices) {
    if (device.index >= count)
      throw_error<InputError>("--device {}: there {} here, counted from cuda:0; ranks can share one: --device {}",
                              asked, count_text(found), shared_gpu(ranks));
    require_usable(asked, device.index, found);
  }
  return {std::move(devices), "asked for"};
}

void require_one_device(std::string_view asked) {
  std::vector<Device> devices = devices_named(asked);
  if (devices.size() <= 1) return;
  const std::size_t count = devices.size();
  std::ranges::sort(devices);
  const auto twice = std::ranges::adjacent_find(devices);
  if (twice != devices.end())
    throw_error<InputError>("--device {}: {} is named twice, for ranks that share it: they need --tp {}", asked,
                            name_of(*twice), count);
  throw_error<InputError>("--device {}: one model on {} devices needs --tp {}", asked, count, count);
}

}  // namespace heddle

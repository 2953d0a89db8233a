#include "machine/device_choice.h"

#include <charconv>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kComputeMajor = 9;  // sm_90a: its kernels run on no earlier and no later architecture
constexpr int kComputeMinor = 0;

std::string gpu_text(const GpuDiscovery& found, int index) {
  return fmt::format("cuda:{} ({})", index, found.gpus[static_cast<std::size_t>(index)].name);
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
      throw_error<InputError>("--device {}: there {} here, counted from cuda:0", name_of(*asked),
                              count == 1 ? "is one GPU" : fmt::format("are {} GPUs", count));
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

}  // namespace heddle

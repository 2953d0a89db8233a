#include "cli/bench/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/bench/operands.h"
#include "cli/bench/record.h"
#include "kernels/linear/linear.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/measure.h"
#include "machine/measure_gpu.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

// The functions of NVML, the driver's management library, that report clocks; loaded at run time.
class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) return;
    auto* const init = symbol<int (*)()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (auto* const shut_down = ready_ ? symbol<int (*)()>("nvmlShutdown") : nullptr) shut_down();
    if (library_ != nullptr) ::dlclose(library_);
  }

  // The GPU's number in NVML's order, which equals CUDA's on machines with equal GPUs.
  ordered_json clocks(int index) const {
    auto* const handle_of = symbol<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    auto* const clock = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    void* handle = nullptr;
    if (!ready_ || handle_of == nullptr || clock == nullptr || handle_of(static_cast<unsigned>(index), &handle) != 0)
      return nullptr;
    constexpr int kSm = 1, kMemory = 2;
    unsigned sm = 0, memory = 0;
    if (clock(handle, kSm, &sm) != 0 || clock(handle, kMemory, &memory) != 0) return nullptr;
    return {{"sm", sm}, {"memory", memory}};
  }

 private:
  template <class F>
  F symbol(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<F>(::dlsym(library_, name));
  }

  void* library_;
  bool ready_ = false;
};

std::size_t cache_of(Device device) {
  if (device.kind == DeviceKind::cpu) return static_cast<std::size_t>(last_level_cache_bytes(discover_cpu()));
  const GpuDiscovery found = discover_gpus();
  const auto index = static_cast<std::size_t>(device.index);
  return index < found.gpus.size() ? static_cast<std::size_t>(found.gpus[index].l2_cache_bytes) : 0;
}

std::unique_ptr<Stream> stream_on(Device device, ThreadPool& pool) {
  return device.kind == DeviceKind::cpu ? std::make_unique<Stream>(pool) : std::make_unique<Stream>(device);
}

}  // namespace

BenchDevice::BenchDevice(Device device, int threads)
    : threads_(threads), cache_bytes_(cache_of(device)), pool_(threads), stream_(stream_on(device, pool_)) {}

BenchDevice::~BenchDevice() = default;

double BenchDevice::read_gbps() {
  if constexpr (kHaveCuda)
    if (on_gpu()) {
      constexpr int kPasses = 5;
      if (!probe_) probe_ = std::make_unique<GpuReadProbe>(device());
      probe_->gbps();  // the first pass after another process has run is slower
      std::vector<double> passes(kPasses);
      for (double& pass : passes) pass = probe_->gbps();
      return median(passes);
    }
  return measure_memory_bandwidth({.threads = threads_, .passes = 5});
}

double BenchDevice::flops_limit(DType dtype) {
  if (!on_gpu()) return 1e9 * measure_float32_rate({.threads = threads_, .passes = 3});
  if (const auto known = matrix_rates_.find(dtype); known != matrix_rates_.end()) return known->second;
  constexpr std::int64_t kSide = 8192;
  Operands operands(*stream_);
  LinearParams params{.x = operands.tensor(kSide, kSide, dtype),
                      .weight = operands.weight(kSide, kSide, dtype),
                      .y = operands.tensor(kSide, kSide, dtype)};
  const Lane lane = operands.lane(linear_workspace_bytes(device()));
  // The best of what a model's step runs: which of the two algorithms is ahead depends on the GPU's power and clocks.
  double seconds = 0;
  for (const LinearRole role : {LinearRole::gate_up, LinearRole::down}) {
    params.role = role;
    linear(params, lane);  // before a graph is captured (linear.h)
    const double taken = median(seconds_per_call(5, 7, [&](int) { linear(params, lane); }));
    seconds = seconds == 0 ? taken : std::min(seconds, taken);
  }
  return matrix_rates_[dtype] = 2.0 * kSide * kSide * kSide / seconds;
}

std::function<double()> BenchDevice::timer(int calls, std::function<void(int)> call) {
  if constexpr (kHaveCuda)
    if (on_gpu()) return graph_timer(*stream_, calls, call);
  return [this, calls, call = std::move(call)] {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call(i);
    stream_->synchronize();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / calls;
  };
}

std::vector<double> BenchDevice::seconds_per_call(int calls, int samples, std::function<void(int)> call) {
  const std::function<double()> run = timer(calls, std::move(call));
  for (int warm_up = on_gpu() ? 2 : 1; warm_up > 0; --warm_up) run();
  std::vector<double> seconds(static_cast<std::size_t>(samples));
  for (double& sample : seconds) sample = run();
  return seconds;
}

std::string conditions_text(const BenchDevice& device, DType weights, const nlohmann::json* hello,
                            const BenchRanks& ranks) {
  const ordered_json gpu = gpu_record(device.device());
  std::string text = gpu.is_object()
                         ? fmt::format("{} ({})", name_of(device.device()), gpu.at("name").get<std::string>())
                         : fmt::format("{}, threads {}", name_of(device.device()), device.threads());
  if (ranks.count > 1) {
    text += fmt::format(", {} ranks", ranks.count);
    if (device.on_gpu()) text += fmt::format(" on {} GPU{}", ranks.devices, ranks.devices == 1 ? "" : "s");
  }
  text += fmt::format(", weights {}", name_of(weights));
  if (hello != nullptr) {
    text += fmt::format("; baseline: {} {}", hello->value("name", ""), hello->value("version", ""));
    if (const auto settings = hello->find("settings"); settings != hello->end() && settings->is_object())
      for (const auto& [name, value] : settings->items())
        text += fmt::format(", {} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text + "\n";
}

int default_page_size(Device device) {
  return device.kind == DeviceKind::cuda ? 64 : 32;
}

ordered_json gpu_record(Device device) {
  if (device.kind == DeviceKind::cpu) return nullptr;
  const GpuDiscovery found = discover_gpus();
  if (device.index >= static_cast<int>(found.gpus.size())) return nullptr;
  const GpuInfo& gpu = found.gpus[static_cast<std::size_t>(device.index)];
  return {{"index", device.index},
          {"name", gpu.name},
          {"num_sms", gpu.num_sms},
          {"memory_bytes", gpu.memory_bytes},
          {"l2_cache_bytes", gpu.l2_cache_bytes},
          {"cuda_driver", found.driver_version},
          {"cuda_runtime", found.runtime_version},
          {"clock_mhz", Nvml().clocks(device.index)}};
}

}  // namespace heddle

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/gpu_activity.h"
#include "base/shared_library.h"

namespace heddle {
namespace {

// CUPTI's functions, as its header declares them. Loaded when they are first needed, since few runs trace.
struct Cupti {
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp{};
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks{};
  decltype(&cuptiActivityEnable) enable{};
  decltype(&cuptiActivityDisable) disable{};
  decltype(&cuptiActivityFlushAll) flush_all{};
  decltype(&cuptiActivityGetNextRecord) next_record{};
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records{};
  decltype(&cuptiGetResultString) result_string{};
};

Cupti load_cupti() {
  const std::string file = fmt::format("libcupti.so.{}", CUDART_VERSION / 1000);
  const SharedLibrary library(fmt::format("CUPTI of CUDA {}", CUDART_VERSION / 1000),
                              {file, "/usr/local/cuda/lib64/" + file, "/usr/local/cuda/extras/CUPTI/lib64/" + file});
  Cupti cupti;
  library.find("cuptiActivityRegisterTimestampCallback", cupti.register_timestamp);
  library.find("cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  library.find("cuptiActivityEnable", cupti.enable);
  library.find("cuptiActivityDisable", cupti.disable);
  library.find("cuptiActivityFlushAll", cupti.flush_all);
  library.find("cuptiActivityGetNextRecord", cupti.next_record);
  library.find("cuptiActivityGetNumDroppedRecords", cupti.dropped_records);
  library.find("cuptiGetResultString", cupti.result_string);
  return cupti;
}

const Cupti& cupti() {
  static const Cupti library = load_cupti();
  return library;
}

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cupti().result_string(result, &text);
  throw_error<Failure>("CUPTI: {}: {}", call, text == nullptr ? "unknown error" : text);
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

// What CUPTI has delivered, on a thread of its own. Its callbacks get no argument of the caller's.
class Delivered {
 public:
  void add(int device, std::uint32_t stream, std::string name, std::uint64_t begin, std::uint64_t end, int blocks = 0) {
    if (begin == 0 || end < begin) return;  // of which CUPTI has no times
    std::vector<GpuEntry>& entries = streams_[{device, stream}];
    if (entries.size() >= TraceTrack::kMostEntries) {
      ++dropped_;
      return;
    }
    entries.push_back({.name = std::move(name),
                       .begin = static_cast<std::int64_t>(begin),
                       .end = static_cast<std::int64_t>(end),
                       .blocks = blocks,
                       .waits = {}});
  }

  // `dropped`: records that CUPTI had no room for.
  void read(std::uint8_t* buffer, std::size_t bytes, std::size_t dropped) {
    const std::lock_guard lock(mutex_);
    dropped_ += dropped;
    CUpti_Activity* record = nullptr;
    while (cupti().next_record(buffer, bytes, &record) == CUPTI_SUCCESS) add(*record);
  }

  GpuRecords taken() {
    const std::lock_guard lock(mutex_);
    GpuRecords records{.tracks = {}, .dropped = std::exchange(dropped_, 0)};
    for (auto& [place, entries] : std::exchange(streams_, {})) {
      std::ranges::sort(entries, {}, &GpuEntry::begin);
      records.tracks.push_back({place.first, place.second, std::move(entries)});
    }
    return records;
  }

 private:
  void add(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& one = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
        const auto place = names_.try_emplace(one.name);
        if (place.second) place.first->second = short_kernel_name(demangled(one.name));
        return add(static_cast<int>(one.deviceId), one.streamId, place.first->second, one.start, one.end,
                   one.gridX * one.gridY * one.gridZ);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& one = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
        return add(static_cast<int>(one.deviceId), one.streamId, "copy", one.start, one.end);
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& one = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4&>(record);
        return add(static_cast<int>(one.deviceId), one.streamId, "copy between GPUs", one.start, one.end);
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& one = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
        return add(static_cast<int>(one.deviceId), one.streamId, "fill", one.start, one.end);
      }
      default:
        return;
    }
  }

  std::mutex mutex_;
  std::map<std::pair<int, std::uint32_t>, std::vector<GpuEntry>> streams_;
  std::map<std::string, std::string> names_;  // short ones, by the mangled
  std::size_t dropped_ = 0;
};

// Never destroyed: CUPTI may deliver while the process ends.
Delivered& delivered() {
  static Delivered& all = *new Delivered;
  return all;
}

constexpr std::size_t kBufferBytes = std::size_t{4} << 20, kBufferAlignment = 8;

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  std::size_t dropped = 0;
  cupti().dropped_records(context, stream, &dropped);
  delivered().read(buffer, valid_bytes, dropped);
  std::free(buffer);
}

std::uint64_t clock_for_cupti() {
  return static_cast<std::uint64_t>(trace_clock());
}

void disable_all() {
  for (const CUpti_ActivityKind kind : kKinds) cupti().disable(kind);  // one that is not enabled stays so
}

bool one_lives = false;

}  // namespace

GpuActivity::GpuActivity() {
  require(!one_lives, "two records of GPUs at a time");
  check(cupti().register_timestamp(clock_for_cupti), "cuptiActivityRegisterTimestampCallback");
  check(cupti().register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  try {
    for (const CUpti_ActivityKind kind : kKinds) check(cupti().enable(kind), "cuptiActivityEnable");
  } catch (...) {
    disable_all();
    throw;
  }
  one_lives = true;
}

GpuActivity::~GpuActivity() {
  disable_all();
  cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  static_cast<void>(delivered().taken());  // nobody wants them any more
  one_lives = false;
}

GpuRecords GpuActivity::collect() {
  check(cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  return delivered().taken();
}

}  // namespace heddle

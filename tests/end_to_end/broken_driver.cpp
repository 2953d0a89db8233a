// An NVIDIA driver that fails on demand, for broken_driver.sh. Preloaded into a process (LD_PRELOAD), it intercepts
// calls from the CUDA runtime to the real driver, counts them by function and answers as the environment says:
//   BROKEN_DRIVER_CALL=NAME:N:CODE[:once]  the N-th call of NAME (counted from 1; cuGraphLaunch, ...) returns CODE, a CUresult,
//                                          and so does every later call, as after losing a GPU; `once`: only that call
//   BROKEN_DRIVER_VERSION=12020            what cuDriverGetVersion returns
//   BROKEN_DRIVER_CAPABILITY=8.0           the compute capability of every GPU
//   BROKEN_DRIVER_FREE=1048576             bytes of GPU memory that are free
// With BROKEN_DRIVER_TRACE set, it prints the number of calls of each function to standard error at the end.
// For x86-64 and AArch64 Linux. Links no code of Heddle.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace {

// A driver's function has integers and pointers for parameters, some of them (handles passed by value) on the stack.
using Word = std::uintptr_t;
using Function = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

constexpr int kSuccess = 0;
constexpr Word kComputeMajor = 75, kComputeMinor = 76;  // CUdevice_attribute

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Breakage {
  std::string name;
  long call = 0;
  int code = 0;
  bool once = false;

  Breakage() {
    const std::string text = setting("BROKEN_DRIVER_CALL");
    const auto first = text.find(':'), second = text.find(':', first + 1);
    if (second == std::string::npos) return;
    name = text.substr(0, first);
    call = std::strtol(text.c_str() + first + 1, nullptr, 10);
    code = static_cast<int>(std::strtol(text.c_str() + second + 1, nullptr, 10));
    once = text.ends_with(":once");
  }
};

const Breakage& breakage() {
  static const Breakage made;
  return made;
}

std::atomic<bool> broken = false;

struct Slot {
  std::string name;
  Function real = nullptr;
  std::atomic<long> calls = 0;
};

constexpr std::size_t kSlots = 2048;
std::array<Slot, kSlots> slots;
std::atomic<std::size_t> num_slots = 0;

void* stand_in(std::string_view name, void* real);

// The properties of a GPU that the environment overrides.
void pretend(std::string_view name, Word first, Word second) {
  const std::string capability = setting("BROKEN_DRIVER_CAPABILITY"), version = setting("BROKEN_DRIVER_VERSION"),
                    free = setting("BROKEN_DRIVER_FREE");
  if (name == "cuDeviceGetAttribute" && !capability.empty()) {
    if (second == kComputeMajor) *reinterpret_cast<int*>(first) = std::atoi(capability.c_str());
    if (second == kComputeMinor)
      *reinterpret_cast<int*>(first) = std::atoi(capability.c_str() + capability.find('.') + 1);
  }
  if (name == "cuDriverGetVersion" && !version.empty()) *reinterpret_cast<int*>(first) = std::atoi(version.c_str());
  if (name == "cuMemGetInfo" && !free.empty())
    *reinterpret_cast<std::size_t*>(first) = std::strtoull(free.c_str(), nullptr, 10);
  if (name == "cuGetProcAddress") {
    auto*& found = *reinterpret_cast<void**>(second);
    if (found != nullptr) found = stand_in(reinterpret_cast<const char*>(first), found);
  }
}

template <std::size_t kIndex>
int forward(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l, Word m,
            Word n) {
  Slot& slot = slots[kIndex];
  const Breakage& wanted = breakage();
  const bool always_works = slot.name.starts_with("cuGetError") || slot.name == "cuGetProcAddress";
  if (++slot.calls == wanted.call && slot.name == wanted.name) {
    if (wanted.once) return wanted.code;
    broken = true;
  }
  if (broken && !always_works) return wanted.code;
  const int result = slot.real(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  if (result == kSuccess) pretend(slot.name, a, b);
  return result;
}

template <std::size_t... kIndex>
constexpr std::array<Function, sizeof...(kIndex)> forwards(std::index_sequence<kIndex...>) {
  return {&forward<kIndex>...};
}

// `real`, the driver's function of that name (the driver's other versions of it have other addresses), by way of
// forward().
void* stand_in(std::string_view name, void* real) {
  static constexpr auto kForwards = forwards(std::make_index_sequence<kSlots>());
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  const auto function = reinterpret_cast<Function>(real);
  const std::size_t count = num_slots;
  for (std::size_t index = 0; index < count; ++index)
    if (slots[index].real == function || kForwards[index] == function) return reinterpret_cast<void*>(kForwards[index]);
  if (count == kSlots) std::abort();
  if (const auto version = name.find("_v"); version != std::string_view::npos) name = name.substr(0, version);
  slots[count].name = name;
  slots[count].real = function;
  num_slots = count + 1;
  return reinterpret_cast<void*>(kForwards[count]);
}

struct Trace {
  ~Trace() {
    if (*setting("BROKEN_DRIVER_TRACE") == '\0') return;
    for (std::size_t index = 0; index < num_slots; ++index)
      if (slots[index].calls > 0)
        std::fprintf(stderr, "%s %ld\n", slots[index].name.c_str(), slots[index].calls.load());
  }
} trace;

}  // namespace

// The CUDA runtime finds the driver's functions with dlsym, most of them by way of the driver's cuGetProcAddress.
extern "C" __attribute__((visibility("default"))) void* dlsym(void* library, const char* name) {
#ifdef __x86_64__
  static const auto real = reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
#else
  static const auto real = reinterpret_cast<void* (*)(void*, const char*)>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17"));
#endif
  void* found = real(library, name);
  const bool of_driver = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
  return of_driver && found != nullptr ? stand_in(name, found) : found;
}

#include "machine/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "machine/cpu.h"
#include "machine/measure_kernels.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

// Zeroed memory directly from the system, in huge pages if available.
class Pages {
 public:
  explicit Pages(std::size_t size_bytes) : size_bytes_(size_bytes) {
    address_ = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED)
      throw_error<Failure>("measuring memory bandwidth: cannot allocate {} bytes: {}", size_bytes,
                           std::strerror(errno));
    ::madvise(address_, size_bytes, MADV_HUGEPAGE);  // advice: failure does not matter
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(address_, size_bytes_); }

  std::uint64_t* words() const { return static_cast<std::uint64_t*>(address_); }

 private:
  void* address_;
  std::size_t size_bytes_;
};

// Runs `prepare(rank)` on each thread, then `work(rank)` `passes` times, with all ranks of a pass starting together.
// Returns the seconds of each pass, from the common start until the last rank is done.
std::vector<double> time_passes(int threads, int passes, FunctionRef<void(int)> prepare, FunctionRef<void(int)> work) {
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(passes));
  std::barrier together(threads);
  const auto run = [&](int rank) {
    prepare(rank);
    for (int pass = 0; pass < passes; ++pass) {
      together.arrive_and_wait();
      const Clock::time_point start = Clock::now();
      work(rank);
      together.arrive_and_wait();
      if (rank == 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  };
  std::vector<std::jthread> others;
  int rank = 1;
  try {
    for (; rank < threads; ++rank) others.emplace_back(run, rank);
  } catch (const std::system_error&) {
    for (; rank < threads; ++rank) together.arrive_and_drop();  // nobody waits for threads that failed to start
    run(0);
    others.clear();
    throw_error<Failure>("measuring: cannot start {} threads", threads);
  }
  run(0);
  return seconds;
}

std::int64_t default_buffer_bytes(int threads) {
  constexpr std::int64_t kLeast = std::int64_t{128} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const CpuInfo cpu = discover_cpu();
  const std::int64_t caches = cpu.caches.empty() ? 1 : std::min(threads, cpu.caches.back().count);
  std::int64_t bytes = std::clamp(4 * caches * last_level_cache_bytes(cpu), kLeast, kMost);
  if (cpu.available_memory_bytes > 0) bytes = std::min(bytes, cpu.available_memory_bytes / 4);
  return bytes;
}

// A full-period generator (Knuth's MMIX constants): fast, and its output does not compress.
std::uint64_t fill(std::uint64_t* words, std::size_t count, std::uint64_t seed) {
  std::uint64_t state = seed;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    words[i] = state;
    sum += state;
  }
  return sum;
}

// Uses the result, so that the compiler cannot remove the run.
void check_chains(const FmaRun& run) {
  if (!(run.result > 0)) throw_error<Failure>("measuring float32: chains of multiply-adds gave {}", run.result);
}

std::string bandwidth_name(int threads) {
  return fmt::format("memory_bandwidth_gbps.threads={}", threads);
}

}  // namespace

double measure_memory_bandwidth(const BandwidthOptions& options) {
  require(options.threads >= 1 && options.passes >= 1 && options.buffer_bytes >= 0,
          "measure_memory_bandwidth: {} threads, {} passes, {} bytes", options.threads, options.passes,
          options.buffer_bytes);
  const auto threads = static_cast<std::size_t>(options.threads);
  const std::int64_t buffer_bytes =
      options.buffer_bytes > 0 ? options.buffer_bytes : default_buffer_bytes(options.threads);
  const std::size_t slice =
      round_up(ceil_div(static_cast<std::size_t>(buffer_bytes), threads * sizeof(std::uint64_t)), kSumGranule);
  const std::size_t size_bytes = slice * threads * sizeof(std::uint64_t);
  const Pages pages(size_bytes);

  struct alignas(64) Sums {  // one cache line each, to avoid false sharing
    std::uint64_t written = 0;
    std::uint64_t read = 0;
  };
  std::vector<Sums> sums(threads);
  const auto first_word = [&](int rank) { return pages.words() + static_cast<std::size_t>(rank) * slice; };
  // The thread that reads a slice also touches it first, so that it lies in that thread's NUMA node.
  std::vector<double> seconds = time_passes(
      options.threads, options.passes,
      [&](int rank) { sums[rank].written = fill(first_word(rank), slice, static_cast<std::uint64_t>(rank) + 1); },
      [&](int rank) { sums[rank].read += sum_words(first_word(rank), slice); });
  for (const Sums& sum : sums)
    if (sum.read != sum.written * static_cast<std::uint64_t>(options.passes))
      throw_error<Failure>("measuring memory bandwidth: the sum of what was read is not that of what was written");
  const auto median = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, median);
  return static_cast<double>(size_bytes) / 1e9 / *median;
}

double measure_float32_rate(const ArithmeticOptions& options) {
  require(options.threads >= 1 && options.passes >= 1 && options.pass_seconds > 0 && options.pass_seconds < 60,
          "measure_float32_rate: {} threads, {} passes, {} s", options.threads, options.passes, options.pass_seconds);
  // Finds how many steps fill a pass, by a short run after the clock has ramped up.
  std::int64_t steps = 1 << 12;
  double seconds = 0;
  while (steps < std::int64_t{1} << 40) {
    const Clock::time_point start = Clock::now();
    check_chains(run_fma_chains(0.5f, steps));
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > options.pass_seconds / 4) break;
    steps *= 2;
  }
  steps =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) * options.pass_seconds / seconds));

  std::vector<FmaRun> runs(static_cast<std::size_t>(options.threads));
  const std::vector<double> pass_seconds = time_passes(
      options.threads, options.passes, [](int) {}, [&](int rank) { runs[rank] = run_fma_chains(0.5f, steps); });
  double flops = 0;
  for (const FmaRun& run : runs) {
    check_chains(run);
    flops += run.flops;
  }
  return flops / 1e9 / std::ranges::min(pass_seconds);
}

std::string highway_version() {
  const auto [major, minor, patch] = kernel_library_version();
  return fmt::format("{}.{}.{}", major, minor, patch);
}

double remeasure_memory_bandwidth_gbps(TunedStore& store, int threads) {
  const double measured = measure_memory_bandwidth({.threads = threads});
  store.put(bandwidth_name(threads), measured);
  return measured;
}

double memory_bandwidth_gbps(TunedStore& store, int threads) {
  const std::optional<double> stored = store.number(bandwidth_name(threads));
  if (stored && *stored > 0) return *stored;
  return remeasure_memory_bandwidth_gbps(store, threads);
}

}  // namespace heddle

// Measures what this machine reaches now: memory read bandwidth and float32 arithmetic.
#pragma once

#include <cstdint>
#include <string>

#include "machine/tuned_store.h"

namespace heddle {

struct BandwidthOptions {
  int threads = 1;
  // Size read per pass. 0: four times the last-level caches that the threads can reach, within [128 MiB, 1 GiB] and at
  // most a quarter of the available memory.
  std::int64_t buffer_bytes = 0;
  int passes = 15;
};

// GB/s (1e9 bytes) at which `threads` threads together read memory: the median of the passes, as for everything it is
// compared with. Each pass sums a buffer of random numbers and checks the sum. Takes a fraction of a second. Throws
// InvalidArgument on options < 0 or threads or passes < 1, Failure when there is no memory for the buffer.
double measure_memory_bandwidth(const BandwidthOptions& options);

struct ArithmeticOptions {
  int threads = 1;
  double pass_seconds = 0.02;  // approximately
  int passes = 5;
};

// GFLOP/s (1e9) of `threads` threads on chains of float32 multiply-adds in registers, with the widest instructions that
// this machine and the build's CPU kernels support: an upper bound for every kernel. The best of the passes.
double measure_float32_rate(const ArithmeticOptions& options);

// Highway's version, "1.0.3". Defined here so that only kernels include its headers, which compile slowly.
std::string highway_version();

// The stored value for this number of threads. Measures and stores it if there is none. Throws as
// measure_memory_bandwidth does.
double memory_bandwidth_gbps(TunedStore& store, int threads);

// Measures now and stores.
double remeasure_memory_bandwidth_gbps(TunedStore& store, int threads);

}  // namespace heddle

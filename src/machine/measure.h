// What this machine reaches: memory read bandwidth and float32 arithmetic, measured here and now.
#pragma once

#include <cstdint>
#include <string>

#include "machine/tuned_store.h"

namespace heddle {

struct BandwidthOptions {
  int threads = 1;
  // Read once a pass. 0: four times the last-level caches that the threads can reach, in [128 MiB, 1 GiB] and at most
  // a quarter of the available memory.
  std::int64_t buffer_bytes = 0;
  int passes = 15;
};

// GB/s (1e9 bytes) at which `threads` threads together read memory: the median of the passes, as everything that is
// compared with it is a median, over a buffer of random numbers; each pass sums them all up, and the sum is compared
// with that of what was written. Takes a fraction of a second. Throws InvalidArgument on options < 0 or threads or
// passes < 1, Failure when there is no memory for the buffer.
double measure_memory_bandwidth(const BandwidthOptions& options);

struct ArithmeticOptions {
  int threads = 1;
  double pass_seconds = 0.02;  // about
  int passes = 5;
};

// GFLOP/s (1e9) of `threads` threads on chains of float32 multiply-adds in registers, with the widest instructions of
// this machine that the build's CPU kernels can use: what no kernel can exceed. The best of the passes.
double measure_float32_rate(const ArithmeticOptions& options);

// Of Highway, "1.0.3": asked here, so that its headers, slow to compile, stay with the kernels.
std::string highway_version();

// The store's value for this number of threads; measured now, and stored, when it has none.
// Throws as measure_memory_bandwidth does.
double memory_bandwidth_gbps(TunedStore& store, int threads);

// Measures now and stores.
double remeasure_memory_bandwidth_gbps(TunedStore& store, int threads);

}  // namespace heddle

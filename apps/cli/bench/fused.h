// heddle bench all-gather-linear|linear-reduce-scatter|linear-all-reduce|flash-decode: fused operators beside what they
// replace, on the ranks of a fabric. This is what their benchmarks share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/lane.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "collectives/communicator.h"
#include "fabric/fabric.h"

namespace CLI {
class App;
}

namespace heddle {

// What one rank of a benchmark has.
struct FusedRank {
  Fabric& fabric;
  Stream& stream;
  Stream& transfers;
  Communicator& communicator;
  Lane lane;       // of `stream`: on a GPU this rank's share of the SMs, and a workspace
  Buffer& values;  // of the device: a float32 of this rank, and one of each rank

  Device device() const { return fabric.device(); }
  bool on_gpu() const { return device().kind == DeviceKind::cuda; }
};

// `bytes` at `source`, in memory of the rank's device. Waits.
Buffer uploaded(const FusedRank& rank, const void* source, std::size_t bytes);

// One operator of one shape on one rank: several ways to compute the same result, in the same place.
class FusedCase {
 public:
  struct Variant {
    std::string name;
    std::function<void()> call;           // enqueues on the rank's stream
    std::int64_t inter_kernel_bytes = 0;  // that its operators write and read to hand results to each other
  };

  virtual ~FusedCase() = default;
  const std::vector<Variant>& variants() const { return variants_; }
  // Of operators with a GEMM: that alone, of what the first variant has gathered; nothing crosses ranks.
  const std::function<void()>& gemm() const { return gemm_; }
  // Runs what a first call loads or allocates and does not wait for other ranks; on a GPU that must not happen while
  // another rank's kernel waits.
  virtual void warm_up() {}
  void clear_result(const FusedRank& rank) const;
  // The largest error of an element of this rank's result, against float64. Looks at every element, or at some thousands
  // where there are more.
  virtual double max_relative_error() const = 0;

 protected:
  // The rows of result_, packed. Waits.
  std::vector<float> result_on_host(const FusedRank& rank) const;

  std::vector<Variant> variants_;
  std::function<void()> gemm_;
  Tensor result_;  // float32, of packed rows
};

struct FusedCaseMaker {
  nlohmann::ordered_json shape;                                      // fields of the record
  std::size_t heap_bytes;                                            // of the symmetric heap
  std::function<std::unique_ptr<FusedCase>(const FusedRank&)> make;  // collective
};

struct FusedBenchOptions {
  int ranks = 2;  // if mpirun has not set the number
  std::string devices = "cpu";
  int repeats = 20;
  std::optional<std::string> json_file;
  std::size_t largest_bytes = std::size_t{16} << 20;  // of the communicator on GPUs

  int num_ranks() const;  // of the run
};

// --ranks, --device, --repeats, --json.
void add_fused_options(CLI::App& command, FusedBenchOptions& options);

// A device for each rank. Throws InputError for devices on which its ranks cannot run.
std::vector<Device> require_devices(const FusedBenchOptions& options);

// What was measured of a case, on the slowest rank.
struct FusedMeasurement {
  struct Variant {
    std::string name;
    double microseconds = 0;
    double p10_microseconds = 0, p90_microseconds = 0;  // of rank 0
    double max_relative_error = 0;
    std::int64_t inter_kernel_bytes = 0;
  };
  std::vector<Variant> variants;            // of FusedCase, in its order
  std::optional<double> gemm_microseconds;  // of cases that have one
};

// Measures every variant of every case, interleaved; `after_each` case on rank 0. Empty in a process that is another rank
// than 0.
std::vector<FusedMeasurement> measure_fused(
    const FusedBenchOptions& options, const std::vector<Device>& devices, const std::vector<FusedCaseMaker>& cases,
    const std::function<void(const FusedMeasurement&)>& after_each = [](const FusedMeasurement&) {});

// Measures and writes the record, after each case anew; the first variant is what the others are compared with.
void run_fused_bench(const std::string& kind, const FusedBenchOptions& options, const std::vector<Device>& devices,
                     const std::vector<FusedCaseMaker>& cases);

// A team of the whole world.
Ranks whole_team(const Fabric& fabric);

void add_fused_linear_benchmarks(CLI::App& bench);
void add_flash_decode_benchmark(CLI::App& bench);

}  // namespace heddle

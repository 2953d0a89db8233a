// The device of a benchmark, and the timing of work in its stream: by the clock on the CPU, by events inside a CUDA
// graph on a GPU.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/stream.h"
#include "base/thread_pool.h"

namespace heddle {

class GpuReadProbe;

class BenchDevice {
 public:
  // `threads`: CPU threads. Throws Failure when the device does not exist.
  BenchDevice(Device device, int threads);
  ~BenchDevice();

  Device device() const { return stream_->device(); }
  bool on_gpu() const { return device().kind == DeviceKind::cuda; }
  Stream& stream() { return *stream_; }

  // Measures the read bandwidth of the device's memory now; GB/s. On a GPU the first call allocates the buffer that it
  // reads.
  double read_gbps();

  // The largest cache. Data read again before this many other bytes were read may come from the cache. 0: unknown.
  std::size_t cache_bytes() const { return cache_bytes_; }

  // Peak arithmetic, FLOP/s. On a GPU: of a GEMM of 8192 x 8192 matrices of this dtype by the operator `linear`,
  // measured at the first call. On the CPU: of float32 in registers, measured now.
  double flops_limit(DType dtype);

  // Returns a function that runs the calls once, waits, and returns the seconds per call. `call(i)`, 0 <= i < calls,
  // enqueues call i. On a GPU this captures all calls in one graph, so there is no host work between them.
  std::function<double()> timer(int calls, std::function<void(int)> call);

  // Seconds per call of each sample, after warm-up runs.
  std::vector<double> seconds_per_call(int calls, int samples, std::function<void(int)> call);

  int threads() const { return threads_; }

 private:
  int threads_;
  std::size_t cache_bytes_ = 0;
  ThreadPool pool_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<GpuReadProbe> probe_;
  std::map<DType, double> matrix_rates_;
};

// The fields of a record for a GPU: name, memory, driver, and current clocks. Null on the CPU.
nlohmann::ordered_json gpu_record(Device device);

// Ranks of one model, and the devices that they have.
struct BenchRanks {
  int count = 1;
  int devices = 1;
};

// The heading of a table: the device, the ranks where there are several, the weights' dtype and, if there is one, the
// baseline from its hello.
std::string conditions_text(const BenchDevice& device, DType weights, const nlohmann::json* hello,
                            const BenchRanks& ranks = {});

// Tokens in a page of the engine's cache on that device (engine/engine.h).
int default_page_size(Device device);

// Defined only in builds with CUDA: BenchDevice::timer for a CUDA stream.
std::function<double()> graph_timer(Stream& stream, int calls, const std::function<void(int)>& call);

}  // namespace heddle

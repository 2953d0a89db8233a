// The device that a bench runs on, and how work in its stream is timed: on the CPU by the clock, on a GPU by events
// inside a CUDA graph.
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
  // `threads`: of the CPU. Throws Failure when the device is not there.
  BenchDevice(Device device, int threads);
  ~BenchDevice();

  Device device() const { return stream_->device(); }
  bool on_gpu() const { return device().kind == DeviceKind::cuda; }
  Stream& stream() { return *stream_; }

  // The rate of reading the device's memory, now; GB/s. On a GPU the buffer that is read is allocated by the first
  // call.
  double read_gbps();

  // The largest cache: what is read again before as much else was read may not have come from memory. 0: unknown.
  std::size_t cache_bytes() const { return cache_bytes_; }

  // The rate of arithmetic, FLOP/s: on a GPU of a product of 8192 x 8192 matrices of this dtype by the operator
  // `linear`, measured at the first call; on the CPU of float32 in registers, measured now.
  double flops_limit(DType dtype);

  // What runs the calls once, waits, and returns the seconds of one. `call(i)`, 0 <= i < calls, enqueues; on a GPU all
  // calls are captured here, in one graph, and nothing of the host lies between them.
  std::function<double()> timer(int calls, std::function<void(int)> call);

  // Seconds a call of each sample, after runs that are not counted.
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

// What a record says of a GPU: name, memory, driver, and the clocks of now. Null on the CPU.
nlohmann::ordered_json gpu_record(Device device);

// What a table is headed by: the device, the weights' dtype and, where there is one, the peer by its hello.
std::string conditions_text(const BenchDevice& device, DType weights, const nlohmann::json* hello);

// Tokens in a page of the engine's cache there (engine/engine.h).
int default_page_size(Device device);

// Defined only in builds with CUDA: BenchDevice::timer of a CUDA stream.
std::function<double()> graph_timer(Stream& stream, int calls, const std::function<void(int)>& call);

}  // namespace heddle

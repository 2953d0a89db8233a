// heddle bench collective: its parts.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "collectives/communicator.h"

namespace CLI {
class App;
}

namespace heddle {

// What a GPU's cache holds when a sample begins.
enum class Cache : std::uint8_t {
  cold,  // none of the buffers, as after a layer's weights have been read
  hot    // what the previous sample left
};

struct CollectiveBenchOptions {
  std::string fabric = "shm";
  int ranks = 2;  // if mpirun has not set the number
  std::vector<Collective> collectives{Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all, Collective::broadcast};
  std::size_t from_bytes = std::size_t{1} << 10;
  std::size_t to_bytes = std::size_t{256} << 20;
  int factor = 4;  // between sizes
  DType dtype = DType::float32;
  int repeats = 20;
  std::optional<Choice> forced;
  std::optional<Memory> memory;  // default: symmetric on GPUs, any on the CPU
  bool tune = false;
  Cache cache = Cache::cold;
  std::size_t pipeline_bytes = 0;        // CommunicatorOptions::pipeline_bytes
  bool register_heap = false;            // with NCCL
  std::optional<std::string> json_file;  // as BenchOptions::json_file
};

void add_collective_benchmark(CLI::App& bench);

// One sample: seconds per call. The `calls` calls follow each other in the stream without the host in between; on a GPU
// in a CUDA graph. Begins when every rank of the communicator is ready.
double seconds_per_call(Communicator& communicator, Stream& stream, int calls, FunctionRef<void(int)> call);

struct GraphSamples {
  std::vector<double> seconds;  // per call
  int blocks = 0;               // the largest grid of a call's kernels, hence the SMs it uses; 0: unknown
};

// The same on a GPU: captures a barrier and `calls` calls once, replays the graph once per sample, and times it from
// the end of the barrier. `cache` is overwritten before each sample; may be empty. The ranks' hosts synchronise before
// the first sample and after the last, so that nothing is allocated while another rank's kernel waits. Defined only in
// builds with CUDA.
GraphSamples graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                           std::span<std::byte> cache, FunctionRef<void(int)> call);

// The same of several calls, whose samples are interleaved (interleave.h). Likewise.
std::vector<GraphSamples> interleaved_graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                                                    std::span<const std::function<void()>> each);

// The same with calls that the host launches in each sample, without a graph; `blocks` is 0. Likewise.
std::vector<GraphSamples> interleaved_host_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                                                   std::span<const std::function<void()>> each);

// Collective over the team: a window of NCCL's, or null where it gives none.
std::byte* vendor_window(VendorCollectives& vendor, std::size_t bytes);

// The buffers that calls rotate through, for input and output, and the calls themselves.
class CollectiveBuffers {
 public:
  CollectiveBuffers(Communicator& communicator, Stream& stream, Memory memory, std::size_t most_bytes, DType dtype);
  ~CollectiveBuffers();

  // Bytes of each of two regions, in symmetric memory if requested.
  static std::size_t region_bytes(Device device, std::size_t most_bytes);

  // Call number i of a collective. `bytes` is the size of its larger buffer, a multiple of the ranks' pieces.
  void call(Collective collective, std::size_t bytes, int i);
  // The same with NCCL, on ordinary memory or on registered windows.
  void call_vendor(Collective collective, std::size_t bytes, int i);
  void use_vendor_windows();

  // Runs call number i of an all-reduce. Throws Failure unless samples of its output are the sum in rank order, bit for
  // bit.
  void check_all_reduce(std::size_t bytes, int i);

 private:
  struct Pair {
    std::byte* in;
    std::byte* out;
  };
  Pair pair(std::size_t bytes, int i) const;
  std::size_t count_of(Collective collective, std::size_t bytes) const;

  Communicator& communicator_;
  Stream& stream_;
  Memory memory_;
  std::size_t region_bytes_;
  DType dtype_;
  struct Storage;
  std::unique_ptr<Storage> storage_;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

}  // namespace heddle

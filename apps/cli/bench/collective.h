// heddle bench collective: its parts.
#pragma once

#include <cstddef>
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

// On a GPU: what of the buffers lies in its cache when a sample begins.
enum class Cache : std::uint8_t {
  cold,  // nothing, as after a layer's weights have passed through
  hot    // what the sample before has left
};

struct CollectiveBenchOptions {
  std::string fabric = "shm";
  int ranks = 2;  // where mpirun has not said how many
  std::vector<Collective> collectives{Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all, Collective::broadcast};
  std::size_t from_bytes = std::size_t{1} << 10;
  std::size_t to_bytes = std::size_t{256} << 20;
  int factor = 4;  // from size to size
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

// One sample: seconds a call of `calls` calls, which follow each other in the stream without a host between them,
// on a GPU in a CUDA graph. Begins when every rank of the communicator has come.
double seconds_per_call(Communicator& communicator, Stream& stream, int calls, FunctionRef<void(int)> call);

struct GraphSamples {
  std::vector<double> seconds;  // of a call
  int blocks = 0;               // the most of any kernel of a call, hence of the multiprocessors it takes; 0: unknown
};

// The same on a GPU: a barrier and `calls` calls captured once, replayed once for each sample and timed from the
// barrier's end on. `cache` is what is overwritten before each sample; may be empty. The ranks' hosts meet before the
// first sample and after the last, so that nothing is allocated while another rank's kernel waits. Defined only in
// builds with CUDA.
GraphSamples graph_samples(Communicator& communicator, Stream& stream, int calls, int samples,
                           std::span<std::byte> cache, FunctionRef<void(int)> call);

// The buffers that calls take in turns, in and out, and the calls themselves.
class CollectiveBuffers {
 public:
  CollectiveBuffers(Communicator& communicator, Stream& stream, Memory memory, std::size_t most_bytes, DType dtype);
  ~CollectiveBuffers();

  // Of each of two regions, in symmetric memory where that is asked for.
  static std::size_t region_bytes(Device device, std::size_t most_bytes);

  // Call number i of a collective whose larger buffer has `bytes`, a multiple of what the ranks cut it into.
  void call(Collective collective, std::size_t bytes, int i);
  // The same by NCCL, on ordinary memory or on registered windows.
  void call_vendor(Collective collective, std::size_t bytes, int i);
  void use_vendor_windows();

  // Makes call number i of an all-reduce. Throws Failure unless its output is then the sum in rank order, bit for bit,
  // in some places.
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

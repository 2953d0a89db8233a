// Work of a CUDA stream, recorded once and launched any number of times: one launch instead of one per kernel.
#pragma once

#include "base/function_ref.h"
#include "base/stream.h"

namespace heddle {

class Graph {
 public:
  Graph() = default;
  // Records the work that `enqueue` gives `stream`, a CUDA stream, and runs none of it. The graph keeps the addresses
  // that the work uses. `enqueue` must neither allocate device memory nor wait; run once before, it has done what
  // happens only the first time (loading kernels, choosing algorithms). Throws what `enqueue` throws; Failure when CUDA
  // cannot record it; InvalidArgument in a build without CUDA.
  Graph(Stream& stream, FunctionRef<void()> enqueue);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

  // Enqueues the work on a stream of the same device.
  void launch(Stream& stream) const;

  explicit operator bool() const { return graph_ != nullptr; }

 private:
  void* graph_ = nullptr;
};

}  // namespace heddle

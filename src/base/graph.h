// Work of a CUDA stream, recorded once and run as often as wanted: one launch instead of one for every kernel.
#pragma once

#include "base/function_ref.h"
#include "base/stream.h"

namespace heddle {

class Graph {
 public:
  Graph() = default;
  // Records what `enqueue` gives `stream`, a CUDA stream, and runs none of it. The addresses that the work uses stay in
  // the graph. `enqueue` must neither allocate device memory nor wait, so what it does for the first time (loading
  // kernels, choosing algorithms) it must have done before. Throws what `enqueue` throws, and Failure when CUDA cannot
  // record it; InvalidArgument in a build without CUDA.
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

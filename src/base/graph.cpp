#include "base/graph.h"

#include <utility>

#include "base/cuda_runtime.h"
#include "base/error.h"

namespace heddle {

Graph::Graph(Stream& stream, FunctionRef<void()> enqueue) {
  require(stream.device().kind == DeviceKind::cuda, "graph: only of CUDA streams, this one is on {}",
          name_of(stream.device()));
  if constexpr (kHaveCuda) {
    cuda::begin_capture(stream.native());
    try {
      enqueue();
    } catch (...) {
      cuda::abandon_capture(stream.native());
      throw;
    }
    graph_ = cuda::end_capture(stream.native());
  }
}

Graph::Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

Graph::~Graph() {
  if constexpr (kHaveCuda)
    if (graph_ != nullptr) cuda::destroy_graph(graph_);
}

void Graph::launch(Stream& stream) const {
  require(graph_ != nullptr, "graph: nothing is recorded");
  if constexpr (kHaveCuda) cuda::launch_graph(graph_, stream.native());
}

}  // namespace heddle

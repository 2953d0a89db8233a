// Runs one body on the stream's device: on a CPU thread, or on the blocks of a kernel. The body is a small, trivially
// copyable struct of parameters with a call operator for any Group:
//
//   struct Store {
//     Peers peers;
//     int* place;
//     template <Group G>
//     HEDDLE_HOST_DEVICE void operator()(const G& group) const { ... }
//   };
//   enqueue_body(stream, {.blocks = 8}, Store{fabric.peers(), place});
//
// Files that nvcc compiles can run it on both; other files only on the CPU.
#pragma once

#include <memory>
#include <type_traits>

#include "base/error.h"
#include "base/stream.h"
#include "device/group.h"

#ifdef __CUDACC__
#include "device/launch_sm90.cuh"
#endif

namespace heddle {

struct BodyShape {
  // On a GPU. If they wait for other ranks they must all be resident, unless each waits only for the same block of other
  // ranks. The CPU has one thread per rank.
  int blocks = 1;
  int threads = 256;
};

#ifdef __CUDACC__
template <class Body>
__global__ void run_body(const __grid_constant__ Body body) {
  body(DeviceBlock{});
}
#endif

// Enqueues and returns. Throws InvalidArgument for a CUDA stream in a file that nvcc does not compile; Failure when the
// kernel cannot be launched.
template <class Body>
void enqueue_body(Stream& stream, const BodyShape& shape, const Body& body) {
  static_assert(std::is_trivially_copyable_v<Body>, "a body is copied into a kernel's parameters");
  if (stream.device().kind == DeviceKind::cpu) {
    stream.enqueue([shared = std::make_shared<const Body>(body)](ThreadPool&) { (*shared)(HostThread{}); });
    return;
  }
#ifdef __CUDACC__
  // A body knows nothing of PDL, so it starts when the kernel ahead has ended.
  launch_sm90("enqueue_body", run_body<Body>,
              {.grid = dim3(static_cast<unsigned>(shape.blocks)),
               .block = dim3(static_cast<unsigned>(shape.threads)),
               .programmatic = false},
              stream, body);
#else
  static_cast<void>(shape);
  throw_error<InvalidArgument>("this body was compiled for the CPU alone; {} needs a file for the CUDA compiler",
                               name_of(stream.device()));
#endif
}

}  // namespace heddle

#include <cuda_runtime_api.h>

#include "base/cuda_call.h"
#include "collectives/communicator_cuda.h"

namespace heddle::cuda {

void fill_empty(std::byte* inbox, std::size_t bytes, Stream& stream) {
  const CurrentDevice current(stream.device().index);
  const cudaError_t error = cudaMemsetAsync(inbox, 0xff, bytes, static_cast<cudaStream_t>(stream.native()));
  if (error != cudaSuccess) throw_cuda_error("cannot clear the inboxes", error);
}

}  // namespace heddle::cuda

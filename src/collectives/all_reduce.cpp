#include "collectives/all_reduce.h"

#include "base/copy.h"
#include "collectives/all_reduce_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/run_on_cpu.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_reduce(Communicator& communicator, const AllReduceParams& params, Stream& stream) {
  const bool symmetric = require_aligned("all_reduce", communicator, params.memory, {params.input, params.output});
  communicator.check({Collective::all_reduce, params.dtype, params.count, 0, symmetric}, stream);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes == 0) return;
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(stream, params.output, params.input, bytes);
    return;
  }
  const Choice choice = communicator.choose(Collective::all_reduce, bytes);
  if (choice.algorithm == Algorithm::vendor) {
    communicator.vendor().all_reduce(stream, params.output, params.input, params.count, params.dtype);
  } else if (choice.algorithm == Algorithm::put) {
    all_reduce_by_puts(communicator, params, stream);
  } else if (stream.device().kind == DeviceKind::cpu) {
    with_all_reduce(communicator, params, choice,
                    [&](const auto& program) { communicator.run_on_cpu(program, stream); });
  } else if constexpr (kHaveCuda) {
    all_reduce_cuda(communicator, params, choice, stream);
  }
}

}  // namespace heddle

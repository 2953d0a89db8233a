#include "collectives/reduce_scatter.h"

#include "base/copy.h"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/reduce_scatter_programs.cuh"
#include "collectives/run_on_cpu.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void reduce_scatter(Communicator& communicator, const ReduceScatterParams& params, Stream& stream) {
  const bool symmetric = require_aligned("reduce_scatter", communicator, params.memory, {params.input});
  communicator.check({Collective::reduce_scatter, params.dtype, params.count, 0, symmetric}, stream);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes == 0) return;
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(stream, params.output, params.input, bytes);
    return;
  }
  const Choice choice =
      communicator.choose(Collective::reduce_scatter, bytes * static_cast<std::size_t>(communicator.size()));
  if (choice.algorithm == Algorithm::vendor) {
    communicator.vendor().reduce_scatter(stream, params.output, params.input, params.count, params.dtype);
  } else if (choice.algorithm == Algorithm::put) {
    reduce_scatter_by_puts(communicator, params, stream);
  } else if (stream.device().kind == DeviceKind::cpu) {
    with_reduce_scatter(communicator, params, choice,
                        [&](const auto& program) { communicator.run_on_cpu(program, stream); });
  } else if constexpr (kHaveCuda) {
    reduce_scatter_cuda(communicator, params, choice, stream);
  }
}

}  // namespace heddle

#include "collectives/all_gather.h"

#include "base/copy.h"
#include "collectives/all_gather_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/run_on_cpu.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_gather(Communicator& communicator, const AllGatherParams& params, Stream& stream) {
  const bool symmetric = require_aligned("all_gather", communicator, params.memory, {params.output});
  communicator.check({Collective::all_gather, params.dtype, params.count, 0, symmetric}, stream);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes == 0) return;
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(stream, params.output, params.input, bytes);
    return;
  }
  const Choice choice =
      communicator.choose(Collective::all_gather, bytes * static_cast<std::size_t>(communicator.size()));
  if (choice.algorithm == Algorithm::vendor) {
    communicator.vendor().all_gather(stream, params.output, params.input, params.count, params.dtype);
  } else if (choice.algorithm == Algorithm::put) {
    all_gather_by_puts(communicator, params, stream);
  } else if (stream.device().kind == DeviceKind::cpu) {
    with_all_gather(communicator, params, choice,
                    [&](const auto& program) { communicator.run_on_cpu(program, stream); });
  } else if constexpr (kHaveCuda) {
    all_gather_cuda(communicator, params, choice, stream);
  }
}

}  // namespace heddle

#include "collectives/all_to_all.h"

#include "base/copy.h"
#include "collectives/all_to_all_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/run_on_cpu.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_to_all(Communicator& communicator, const AllToAllParams& params, Stream& stream) {
  const bool symmetric = require_aligned("all_to_all", communicator, params.memory, {params.output});
  communicator.check({Collective::all_to_all, params.dtype, params.count, 0, symmetric}, stream);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes == 0) return;
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(stream, params.output, params.input, bytes);
    return;
  }
  const Choice choice =
      communicator.choose(Collective::all_to_all, bytes * static_cast<std::size_t>(communicator.size()));
  if (choice.algorithm == Algorithm::vendor) {
    communicator.vendor().all_to_all(stream, params.output, params.input, params.count, params.dtype);
  } else if (choice.algorithm == Algorithm::put) {
    all_to_all_by_puts(communicator, params, stream);
  } else if (stream.device().kind == DeviceKind::cpu) {
    with_all_to_all(communicator, params, choice,
                    [&](const auto& program) { communicator.run_on_cpu(program, stream); });
  } else if constexpr (kHaveCuda) {
    all_to_all_cuda(communicator, params, choice, stream);
  }
}

}  // namespace heddle

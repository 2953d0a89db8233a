#include "collectives/broadcast.h"

#include "base/copy.h"
#include "collectives/broadcast_programs.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/run_on_cpu.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void broadcast(Communicator& communicator, const BroadcastParams& params, Stream& stream) {
  require(params.root >= 0 && params.root < communicator.size(), "broadcast: root {} is not in a team of {}",
          params.root, communicator.size());
  const bool symmetric = require_aligned("broadcast", communicator, params.memory, {params.output});
  communicator.check(
      {Collective::broadcast, params.dtype, params.count, static_cast<std::uint64_t>(params.root), symmetric}, stream);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes == 0) return;
  if (communicator.size() == 1) {
    if (params.input != params.output) enqueue_copy(stream, params.output, params.input, bytes);
    return;
  }
  const Choice choice = communicator.choose(Collective::broadcast, bytes);
  if (choice.algorithm == Algorithm::vendor) {
    communicator.vendor().broadcast(stream, params.root, params.output, params.input, params.count, params.dtype);
  } else if (choice.algorithm == Algorithm::put) {
    broadcast_by_puts(communicator, params, stream);
  } else if (stream.device().kind == DeviceKind::cpu) {
    with_broadcast(params, choice, [&](const auto& program) { communicator.run_on_cpu(program, stream); });
  } else if constexpr (kHaveCuda) {
    broadcast_cuda(communicator, params, choice, stream);
  }
}

}  // namespace heddle

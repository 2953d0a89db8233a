#include "collectives/broadcast.h"

#include "collectives/broadcast_programs.cuh"
#include "collectives/carry_out.h"
#include "collectives/collectives_cuda.h"
#include "collectives/pipelined_broadcast.cuh"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void broadcast(Communicator& communicator, const BroadcastParams& params, const Lane& lane) {
  require(params.root >= 0 && params.root < communicator.size(), "broadcast: root {} is not in a team of {}",
          params.root, communicator.size());
  const std::size_t bytes = bytes_of("broadcast", communicator, params.count, params.dtype);
  const void* const read = params.root == communicator.rank() ? params.input : params.output;
  require_buffers("broadcast", communicator, {{read, bytes}, {params.output, bytes}});
  const BufferPlaces places = places_of("broadcast", communicator, params.memory, {{params.output, bytes}});
  const Communicator::Call call{Collective::broadcast, params.dtype, params.count,
                                static_cast<std::uint64_t>(params.root), places};
  const auto vendor = [&](VendorCollectives& nccl) {
    nccl.broadcast(lane.stream, params.root, params.output, params.input, params.count, params.dtype);
  };
  const auto puts = [&] { broadcast_by_puts(communicator, params, lane.stream); };
  const auto programs = [&](const Choice& choice, const auto& run) {
    if (choice.algorithm != Algorithm::pipelined) return with_broadcast(params, choice, run);
    run(PipelinedBroadcast{static_cast<const std::byte*>(params.input), static_cast<std::byte*>(params.output), bytes,
                           params.root});
  };
  const auto cuda = [&](const Choice& choice) {
    if constexpr (kHaveCuda) broadcast_cuda(communicator, params, choice, lane);
  };
  carry_out(communicator, call, bytes, params, lane, vendor, puts, programs, cuda);
}

}  // namespace heddle

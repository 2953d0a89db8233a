#include "collectives/all_gather.h"

#include "collectives/all_gather_programs.cuh"
#include "collectives/carry_out.h"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_gather(Communicator& communicator, const AllGatherParams& params, const Lane& lane) {
  const std::size_t bytes = bytes_of("all_gather", communicator, params.count, params.dtype, communicator.size());
  const std::size_t piece = params.count * size_of(params.dtype);
  require_buffers(
      "all_gather", communicator,
      {{params.input, piece}, {params.output, bytes}, static_cast<std::ptrdiff_t>(piece) * communicator.rank()});
  const BufferPlaces places = places_of("all_gather", communicator, params.memory, {{params.output, bytes}});
  const Communicator::Call call{Collective::all_gather, params.dtype, params.count, 0, places};
  const auto vendor = [&](VendorCollectives& nccl) {
    nccl.all_gather(lane.stream, params.output, params.input, params.count, params.dtype);
  };
  const auto puts = [&] { all_gather_by_puts(communicator, params, lane.stream); };
  const auto programs = [&](const Choice& choice, const auto& run) {
    with_all_gather(communicator, params, choice, run);
  };
  const auto cuda = [&](const Choice& choice) {
    if constexpr (kHaveCuda) all_gather_cuda(communicator, params, choice, lane);
  };
  carry_out(communicator, call, bytes, params, lane, vendor, puts, programs, cuda);
}

}  // namespace heddle

#include "collectives/all_reduce.h"

#include "collectives/all_reduce_programs.cuh"
#include "collectives/carry_out.h"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_reduce(Communicator& communicator, const AllReduceParams& params, const Lane& lane) {
  const std::size_t bytes = bytes_of("all_reduce", communicator, params.count, params.dtype);
  require_buffers("all_reduce", communicator, {{params.input, bytes}, {params.output, bytes}});
  const BufferPlaces places =
      places_of("all_reduce", communicator, params.memory, {{params.input, bytes}, {params.output, bytes}});
  const Communicator::Call call{Collective::all_reduce, params.dtype, params.count, 0, places};
  const auto vendor = [&](VendorCollectives& nccl) {
    nccl.all_reduce(lane.stream, params.output, params.input, params.count, params.dtype);
  };
  const auto puts = [&] { all_reduce_by_puts(communicator, params, lane.stream); };
  const auto programs = [&](const Choice& choice, const auto& run) {
    with_all_reduce(communicator, params, choice, run);
  };
  const auto cuda = [&](const Choice& choice) {
    if constexpr (kHaveCuda) all_reduce_cuda(communicator, params, choice, lane);
  };
  carry_out(communicator, call, bytes, params, lane, vendor, puts, programs, cuda);
}

}  // namespace heddle

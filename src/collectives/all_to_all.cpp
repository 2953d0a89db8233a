#include "collectives/all_to_all.h"

#include <algorithm>

#include "collectives/all_to_all_programs.cuh"
#include "collectives/carry_out.h"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void all_to_all(Communicator& communicator, const AllToAllParams& params, const Lane& lane) {
  const std::size_t bytes = bytes_of("all_to_all", communicator, params.count, params.dtype, communicator.size());
  require_buffers("all_to_all", communicator, {{params.input, bytes}, {params.output, bytes}});
  const BufferPlaces places = places_of("all_to_all", communicator, params.memory, {{params.output, bytes}});
  const Communicator::Call call{Collective::all_to_all, params.dtype, params.count, 0, places};
  const auto vendor = [&](VendorCollectives& nccl) {
    if constexpr (kHaveCuda) {  // NCCL takes no buffer in place
      if (params.input == params.output)
        return all_to_all_cuda(communicator, params, {Algorithm::direct, std::min(16, lane.num_sms)}, lane);
    }
    nccl.all_to_all(lane.stream, params.output, params.input, params.count, params.dtype);
  };
  const auto puts = [&] { all_to_all_by_puts(communicator, params, lane.stream); };
  const auto programs = [&](const Choice& choice, const auto& run) {
    with_all_to_all(communicator, params, choice, run);
  };
  const auto cuda = [&](const Choice& choice) {
    if constexpr (kHaveCuda) all_to_all_cuda(communicator, params, choice, lane);
  };
  carry_out(communicator, call, bytes, params, lane, vendor, puts, programs, cuda);
}

}  // namespace heddle

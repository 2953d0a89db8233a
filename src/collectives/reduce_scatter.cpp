#include "collectives/reduce_scatter.h"

#include "collectives/carry_out.h"
#include "collectives/collectives_cuda.h"
#include "collectives/preconditions.h"
#include "collectives/put_exchange.h"
#include "collectives/reduce_scatter_programs.cuh"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {

void reduce_scatter(Communicator& communicator, const ReduceScatterParams& params, const Lane& lane) {
  const std::size_t bytes = bytes_of("reduce_scatter", communicator, params.count, params.dtype, communicator.size());
  const std::size_t piece = params.count * size_of(params.dtype);
  require_buffers(
      "reduce_scatter", communicator,
      {{params.input, bytes}, {params.output, piece}, -static_cast<std::ptrdiff_t>(piece) * communicator.rank()});
  const BufferPlaces places = places_of("reduce_scatter", communicator, params.memory, {{params.input, bytes}});
  const Communicator::Call call{Collective::reduce_scatter, params.dtype, params.count, 0, places};
  const auto vendor = [&](VendorCollectives& nccl) {
    nccl.reduce_scatter(lane.stream, params.output, params.input, params.count, params.dtype);
  };
  const auto puts = [&] { reduce_scatter_by_puts(communicator, params, lane.stream); };
  const auto programs = [&](const Choice& choice, const auto& run) {
    with_reduce_scatter(communicator, params, choice, run);
  };
  const auto cuda = [&](const Choice& choice) {
    if constexpr (kHaveCuda) reduce_scatter_cuda(communicator, params, choice, lane);
  };
  carry_out(communicator, call, bytes, params, lane, vendor, puts, programs, cuda);
}

}  // namespace heddle

#include "collectives/barrier.h"

#include "collectives/barrier.cuh"
#include "collectives/collectives_cuda.h"
#include "collectives/run_on_cpu.h"

namespace heddle {

void barrier(Communicator& communicator, const Lane& lane) {
  const Choice choice = communicator.choose(Collective::barrier, 0);
  const auto to_compare = communicator.check({Collective::barrier, DType::float32, 0}, choice, lane.stream);
  if (communicator.size() == 1) return;
  if (choice.algorithm == Algorithm::put) {
    communicator.fabric().barrier(lane.stream, communicator.team());
  } else if (lane.stream.device().kind == DeviceKind::cpu) {
    communicator.run_on_cpu(FlagBarrier{}, lane.stream, to_compare);
  } else if constexpr (kHaveCuda) {
    barrier_cuda(communicator, choice, lane);
  }
}

}  // namespace heddle

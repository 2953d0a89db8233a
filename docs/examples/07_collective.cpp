// 07. A collective: what the programs before this one did by hand, for a whole tensor.
//
// A communicator is what a rank holds for a team that calls collectives. Which algorithm a call runs with depends on its
// size (`heddle bench collective --tune` measures that); whichever it is, every rank gets the same bits, for sums are
// taken in rank order. Calls are enqueued like everything else on a stream, one after the other without a barrier.
#include <numeric>
#include <vector>

#include "base/buffer.h"
#include "collectives/all_reduce.h"
#include "example.h"

using namespace heddle;

void rank_main(Fabric& fabric, Stream& stream) {
  Ranks world(static_cast<std::size_t>(fabric.size()));
  std::iota(world.begin(), world.end(), 0);
  Communicator communicator(fabric, world, stream);
  const float expected = static_cast<float>(fabric.size() * (fabric.size() + 1) / 2);
  for (const std::size_t count : {std::size_t{100}, std::size_t{1} << 20}) {
    const std::vector<float> mine(count, static_cast<float>(fabric.rank() + 1));
    std::vector<float> sums(count);
    // Any memory of the fabric's device will do; of the symmetric heap (Memory::symmetric) nothing needs copying.
    Buffer values(count * sizeof(float), fabric.device());
    enqueue_copy(stream, values.data(), mine.data(), values.size_bytes());
    all_reduce(communicator, {values.data(), values.data(), count, DType::float32}, stream);
    enqueue_copy(stream, sums.data(), values.data(), values.size_bytes());
    fabric.synchronize(stream);
    std::size_t right = 0;
    for (const float sum : sums) right += sum == expected ? 1 : 0;
    fmt::print("rank {}: {} of {} sums are {}, by {}\n", fabric.rank(), right, count, expected,
               name_of(communicator.choose(Collective::all_reduce, values.size_bytes()).algorithm));
  }
  fabric.barrier(stream);
  fabric.synchronize(stream);
}

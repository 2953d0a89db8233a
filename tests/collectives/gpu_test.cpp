// The kernels, on however many GPUs there are, against sums in rank order; skipped where there are fewer than two.
#include <gmock/gmock.h>

#include "base/buffer.h"
#include "base/copy.h"
#include "collectives/all_reduce.h"
#include "collectives/payload.h"
#include "fabric/run_ranks.h"
#include "topology/gpu.h"

namespace heddle {
namespace {

int num_gpus() {
  return kHaveCuda ? static_cast<int>(discover_gpus().gpus.size()) : 0;
}

void all_reduce_on(Communicator& communicator, Stream& stream, DType dtype, std::size_t count, std::uint32_t seed) {
  const std::size_t bytes = count * size_of(dtype);
  std::vector<Bits> inputs;
  for (int p = 0; p < communicator.size(); ++p) inputs.push_back(payload(dtype, count, p, seed));
  Buffer buffer(bytes, stream.device());
  enqueue_copy(stream, buffer.data(), inputs[static_cast<std::size_t>(communicator.rank())].data(), bytes);
  all_reduce(communicator, {buffer.data(), buffer.data(), count, dtype}, stream);
  Bits got(bytes);
  enqueue_copy(stream, got.data(), buffer.data(), bytes);
  communicator.fabric().synchronize(stream);
  EXPECT_EQ(first_difference(dtype, got, sum_in_rank_order(dtype, inputs)), -1)
      << name_of(dtype) << " count " << count << " by "
      << name_of(communicator.choose(Collective::all_reduce, bytes).algorithm) << " on rank " << communicator.rank()
      << " of " << communicator.size();
}

TEST(OnGpus, AllReduceGivesTheBitsOfTheOracleByEveryAlgorithm) {
  const int gpus = num_gpus();
  if (gpus < 2) GTEST_SKIP() << "needs two GPUs, there are " << gpus;
  for (int size = 2; size <= gpus; size *= 2)
    run_ranks("nvlink", size, {.heap_bytes = std::size_t{128} << 20}, [&](Fabric& fabric, Stream& stream) {
      Ranks team;
      for (int rank = 0; rank < size; ++rank) team.push_back(rank);
      Communicator communicator(fabric, team, stream);
      std::uint32_t seed = 0;
      for (const Algorithm algorithm : {Algorithm::low_latency, Algorithm::two_phase, Algorithm::direct})
        for (const int blocks : {1, 8, 32})
          for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
            for (const std::size_t count : {std::size_t{1}, std::size_t{31}, std::size_t{4099}, std::size_t{100001}}) {
              communicator.force(Choice{algorithm, blocks});
              all_reduce_on(communicator, stream, dtype, count, ++seed);
            }
    });
}

}  // namespace
}  // namespace heddle

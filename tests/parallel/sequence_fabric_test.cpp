// Sequence parallelism on fabrics that stand for others, and what of it a CPU can say about captured layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "fabric/paced/paced_fabric.h"
#include "fabric/shm/threads.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

TEST(SequenceAttention, IsRightOverEmulatedMachineLinks) {
  const SequenceCase cases[] = {{{2, 2}, 2, 16, {5, 3, 8, 4}}, {{4, 1}, 4, 16, {8, 7, 6, 5}}};
  for (const SequenceCase& of : cases)
    for (const SequenceStrategy strategy : kSequenceStrategies) {
      if (!why_not(strategy, of.placement, of.num_heads).empty()) continue;
      const int ranks = of.placement.size();
      FabricOptions options =
          options_for(SequenceMemory(make_sequence_mesh(strategy, of.placement, of.num_heads), shape_of(of)));
      options.heap_bytes += PacedFabric::kHeapBytes;
      std::vector<std::string> off(static_cast<std::size_t>(ranks));
      ShmThreads world(ranks, options);
      run_team(ranks, [&](TeamMember& member) {
        const auto shm = world.rank(member.rank());
        PacedFabric fabric(*shm, of.placement, {.bytes_per_second = 20e6, .latency = std::chrono::microseconds(30)});
        ThreadPool pool(1);
        Stream stream(pool);
        off[static_cast<std::size_t>(member.rank())] = run_layers(fabric, stream, strategy, of, 4);
      });
      EXPECT_THAT(off, testing::Each("")) << name_of(strategy) << " on " << of.placement.machines << " machines";
    }
}

TEST(SequenceAttention, RejectsToCaptureALayerOnTheCpu) {
  const SequenceCase of{{1, 1}, 2, 16, {5}};
  const SequenceMesh mesh = make_sequence_mesh(SequenceStrategy::one_sided, of.placement, of.num_heads);
  const WholeAttention attention = whole(of);
  ShmThreads world(1, options_for(SequenceMemory(mesh, shape_of(of))));
  run_team(1, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    SequenceAttention layer(*fabric, ranks_from(0, 1), SequenceStrategy::one_sided, mesh, shape_of(of));
    RankOperands operands(of, attention, 0, stream);
    EXPECT_THAT([&] { static_cast<void>(operands.capture(layer, stream)); },
                testing::ThrowsMessage<InvalidArgument>(
                    testing::HasSubstr("only layers on a GPU can be captured, this rank is on cpu")));
  });
}

}  // namespace
}  // namespace heddle

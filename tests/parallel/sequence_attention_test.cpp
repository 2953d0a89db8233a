// Strategies of sequence parallelism on ranks that are threads, against attention in float64 over the whole sequence.
#include "parallel/sequence/sequence_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/team.h"
#include "fabric/shm/threads.h"
#include "parallel/sequence/volume.h"
#include "parallel/sequence_ranks.h"

namespace heddle {
namespace {

// One layer on one rank.
void run_rank(Fabric& fabric, std::span<const int> team, SequenceStrategy strategy, const SequenceMesh& mesh,
              const SequenceCase& of, const WholeAttention& attention, std::vector<float>& y) {
  ThreadPool pool(1);
  Stream stream(pool);
  SequenceAttention layer(fabric, team, strategy, mesh, shape_of(of));
  RankOperands operands(of, attention, static_cast<int>(std::ranges::find(team, fabric.rank()) - team.begin()), stream);
  operands.attend(layer, stream);
  layer.synchronize(stream);
  operands.put_output(y, stream);
}

// Runs one layer on threads, and holds values to float64 and traffic to the count.
void expect_right(SequenceStrategy strategy, const SequenceCase& of) {
  SCOPED_TRACE(testing::Message() << name_of(strategy) << " on " << of.placement.machines << " x "
                                  << of.placement.ranks_per_machine << ", " << of.num_heads << " heads");
  const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads, of.degree);
  const SequenceMemory memory(mesh, shape_of(of));
  const SequenceCount counted = count_sequence_programs(memory, make_sequence_programs(strategy, memory));
  const WholeAttention attention = whole(of);
  std::vector<float> y(attention.q.size());
  const int ranks = of.placement.size();
  std::vector<std::vector<std::int64_t>> put(static_cast<std::size_t>(ranks)), got(put);
  std::vector<int> barriers(static_cast<std::size_t>(ranks));

  ShmThreads world(ranks, options_for(memory));
  run_team(ranks, [&](TeamMember& member) {
    const auto shm = world.rank(member.rank());
    CountedFabric fabric(*shm);
    run_rank(fabric, ranks_from(0, ranks), strategy, mesh, of, attention, y);
    put[static_cast<std::size_t>(member.rank())] = fabric.put_bytes();
    got[static_cast<std::size_t>(member.rank())] = fabric.got_bytes();
    barriers[static_cast<std::size_t>(member.rank())] = fabric.barriers_of_all();
  });

  EXPECT_EQ(first_miss(attention, y), "");
  std::vector<std::int64_t> into(static_cast<std::size_t>(of.placement.machines)), out(into);
  for (int rank = 0; rank < ranks; ++rank)
    for (int peer = 0; peer < ranks; ++peer) {
      if (of.placement.share_machine(rank, peer)) continue;
      const auto here = static_cast<std::size_t>(of.placement.machine_of(rank));
      const auto there = static_cast<std::size_t>(of.placement.machine_of(peer));
      const std::int64_t pushed = put[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
      const std::int64_t pulled = got[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
      out[here] += pushed / static_cast<std::int64_t>(size_of(of.dtype));
      into[there] += pushed / static_cast<std::int64_t>(size_of(of.dtype));
      into[here] += pulled / static_cast<std::int64_t>(size_of(of.dtype));
      out[there] += pulled / static_cast<std::int64_t>(size_of(of.dtype));
    }
  EXPECT_EQ(into, counted.into_machine);
  EXPECT_EQ(out, counted.out_of_machine);
  EXPECT_THAT(barriers, testing::Each(ranks == 1 ? 0 : mesh.ring == ranks ? 2 : counted.barriers_of_all));
}

// Every case of the table under every strategy that fits.
const SequenceCase kSequenceCases[] = {
    {{1, 1}, 2, 32, {9}},                 // one rank
    {{2, 1}, 4, 32, {20, 13}},            // two machines of one GPU, ragged
    {{1, 2}, 2, 16, {7, 8}, 2},           // one machine; a batch
    {{3, 1}, 3, 16, {5, 9, 1}},           //
    {{2, 2}, 4, 32, {11, 8, 140, 3}},     // a rank with more than a block of keys
    {{2, 2}, 2, 16, {6, 6, 6, 6}},        // 2 heads on 4 ranks: P_u is 2
    {{2, 2}, 3, 16, {6, 0, 2, 5}},        // P_u is 1; a rank without tokens
    {{4, 1}, 4, 16, {8, 7, 6, 5}},        // Torus over four machines
    {{4, 1}, 6, 16, {4, 4, 4, 5}},        // P_u is 2 on 4 machines: Torus over half of them
    {{3, 2}, 4, 16, {3, 4, 5, 6, 7, 8}},  // P_u would be 2, where Ring sends less
    {{3, 2}, 4, 16, {3, 4, 5, 6, 7, 8}, 1, DType::float32, PieceMask::full, 2},  // rings of 3 that cross machines of 2
    {{2, 3}, 3, 16, {3, 4, 5, 6, 7, 8}},                  // rings of 2 on machines of 3: three parts
    {{2, 3}, 6, 8, {3, 4, 5, 6, 7, 8}},                   //
    {{2, 3}, 2, 8, {3, 4, 5, 6, 7, 8}},                   // a ring of 3 inside each machine
    {{2, 4}, 4, 16, {3, 1, 4, 1, 5, 9, 2, 6}},            // T, U and R are 2
    {{4, 2}, 4, 16, {5, 3, 5, 8, 9, 7, 9, 3}},            //
    {{2, 2}, 4, 32, {11, 8, 30, 3}, 2, DType::bfloat16},  //
    {{2, 2}, 4, 16, {11, 8, 30, 3}, 1, DType::float32, PieceMask::causal},
};

class SequenceAttentionOn : public testing::TestWithParam<std::tuple<SequenceStrategy, SequenceCase>> {};
INSTANTIATE_TEST_SUITE_P(Cases, SequenceAttentionOn,
                         testing::Combine(testing::ValuesIn(kSequenceStrategies), testing::ValuesIn(kSequenceCases)));

TEST_P(SequenceAttentionOn, ComputesTheAttentionOfTheWholeSequenceAndMovesWhatIsCounted) {
  const auto& [strategy, of] = GetParam();
  if (!why_not(strategy, of.placement, of.num_heads, of.degree).empty())
    GTEST_SKIP() << why_not(strategy, of.placement, of.num_heads, of.degree);
  expect_right(strategy, of);
}

TEST(SequenceAttention, TakesAnyDegreeThatDividesRanksAndHeads) {
  for (const SequenceStrategy strategy :
       {SequenceStrategy::usp, SequenceStrategy::tas, SequenceStrategy::torus, SequenceStrategy::one_sided})
    for (const int degree : {1, 2, 4, 8})
      expect_right(
          strategy,
          {.placement = {2, 4}, .num_heads = 8, .head_dim = 8, .tokens = {3, 1, 4, 1, 5, 9, 2, 6}, .degree = degree});
}

// Layers follow each other on the same memory while ranks are late at random. Two sets of operands alternate, so what an
// earlier layer left would be seen.
TEST(SequenceAttention, ManyLayersInARowReuseTheMemoryWhileRanksAreLate) {
  const SequenceCase cases[] = {{{2, 2}, 4, 16, {5, 3, 8, 4}},
                                {{3, 2}, 4, 8, {3, 4, 5, 6, 7, 8}, 1, DType::float32, PieceMask::full, 2}};
  for (const SequenceCase& of : cases)
    for (const SequenceStrategy strategy : kSequenceStrategies) {
      if (!why_not(strategy, of.placement, of.num_heads).empty()) continue;
      const int ranks = of.placement.size();
      const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads, of.degree);
      const SequenceMemory memory(mesh, shape_of(of));
      const WholeAttention attentions[2] = {whole(of, 1), whole(of, 7)};
      std::vector<float> y[2] = {std::vector<float>(attentions[0].q.size()),
                                 std::vector<float>(attentions[1].q.size())};
      ShmThreads world(ranks, options_for(memory));
      run_team(ranks, [&](TeamMember& member) {
        const auto shm = world.rank(member.rank());
        LateFabric fabric(*shm, static_cast<unsigned>(member.rank()) + 1);
        ThreadPool pool(1);
        Stream stream(pool);
        SequenceAttention layer(fabric, ranks_from(0, ranks), strategy, mesh, shape_of(of));
        RankOperands operands[2] = {{of, attentions[0], member.rank(), stream},
                                    {of, attentions[1], member.rank(), stream}};
        for (int i = 0; i < 12; ++i) operands[i % 2].attend(layer, stream);
        layer.synchronize(stream);
        operands[0].put_output(y[0], stream);
        operands[1].put_output(y[1], stream);
      });
      EXPECT_EQ(first_miss(attentions[0], y[0]), "") << name_of(strategy);
      EXPECT_EQ(first_miss(attentions[1], y[1]), "") << name_of(strategy);
    }
}

TEST(SequenceAttention, NamesARankThatNeverComes) {
  const SequenceCase of{{2, 2}, 4, 16, {5, 3, 8, 4}};
  const SequenceMesh mesh = make_sequence_mesh(SequenceStrategy::one_sided, of.placement, of.num_heads);
  FabricOptions options = options_for(SequenceMemory(mesh, shape_of(of)));
  options.deadline = std::chrono::milliseconds(300);
  const WholeAttention attention = whole(of);
  ShmThreads world(4, options);
  std::string said;
  run_team(4, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    SequenceAttention layer(*fabric, ranks_from(0, 4), SequenceStrategy::one_sided, mesh, shape_of(of));
    RankOperands operands(of, attention, member.rank(), stream);
    if (member.rank() != 3) {
      operands.attend(layer, stream);
      try {
        layer.synchronize(stream);
      } catch (const Failure& error) {
        if (member.rank() == 0) said = error.what();
      }
    }
    member.barrier();  // rank 3 is there, and does nothing
  });
  EXPECT_THAT(said, testing::HasSubstr("rank 3"));
}

// CFG parallelism: each half of the batch has a team of its own, beside the other. With 2 heads there are rings, too.
TEST(SequenceAttention, TwoHalvesOfABatchRunBesideEachOtherUnderEveryStrategy) {
  for (const int heads : {2, 4})
    for (const SequenceStrategy strategy : kSequenceStrategies) {
      const SequenceCase half{{2, 2}, heads, 16, {5, 3, 8, 4}};
      if (!why_not(strategy, half.placement, half.num_heads).empty()) continue;
      SCOPED_TRACE(testing::Message() << name_of(strategy) << ", " << heads << " heads");
      const SequenceMesh mesh = make_sequence_mesh(strategy, half.placement, half.num_heads);
      const SequenceMemory memory(mesh, shape_of(half));
      const WholeAttention attentions[2] = {whole(half, 1), whole(half, 7)};
      std::vector<float> y[2] = {std::vector<float>(attentions[0].q.size()),
                                 std::vector<float>(attentions[1].q.size())};
      ShmThreads world(8, options_for(memory));
      run_team(8, [&](TeamMember& member) {
        const auto fabric = world.rank(member.rank());
        const int of = member.rank() / 4;
        run_rank(*fabric, ranks_from(4 * of, 4), strategy, mesh, half, attentions[of], y[of]);
      });
      EXPECT_EQ(first_miss(attentions[0], y[0]), "");
      EXPECT_EQ(first_miss(attentions[1], y[1]), "");
    }
}

// With waits in place of computation, a layer of computation alone takes as long as the timeline's: it moves nothing, and
// meets nobody. The layers around it are whole.
TEST(SequenceAttention, ComputesAloneForAsLongAsTheTimelineSays) {
  const SequenceCase of{{2, 2}, 2, 16, {6, 6, 6, 6}};
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    if (!why_not(strategy, of.placement, of.num_heads).empty()) continue;
    SCOPED_TRACE(name_of(strategy));
    const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads);
    const SequenceMemory memory(mesh, shape_of(of));
    const SequenceRates rates{.attention_flops = 1e7, .call_seconds = 0.01};
    const double compute_seconds =
        predict_sequence(memory, make_sequence_programs(strategy, memory), rates).compute_seconds;
    const WholeAttention attention = whole(of);
    std::vector<float> y(attention.q.size());
    ShmThreads world(4, options_for(memory));
    run_team(4, [&](TeamMember& member) {
      const auto shm = world.rank(member.rank());
      CountedFabric fabric(*shm);
      ThreadPool pool(1);
      Stream stream(pool);
      SequenceAttention layer(fabric, ranks_from(0, 4), strategy, mesh, shape_of(of));
      RankOperands operands(of, attention, member.rank(), stream);
      layer.set_work(SequenceWork::computation);
      operands.attend(layer, stream);
      layer.synchronize(stream);
      member.barrier();
      layer.set_work(SequenceWork::whole);
      operands.attend(layer, stream);
      layer.synchronize(stream);
      operands.put_output(y, stream);
      const auto puts = fabric.put_bytes(), gets = fabric.got_bytes();
      const int barriers = fabric.barriers_of_all();

      layer.replace_computation(rates);
      layer.set_work(SequenceWork::computation);
      const auto begin = std::chrono::steady_clock::now();
      if (member.rank() == 0) {  // the others do not come
        operands.attend(layer, stream);
        layer.synchronize(stream);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        EXPECT_GE(taken.count(), compute_seconds);
        EXPECT_LT(taken.count(), 2 * compute_seconds);
      }
      EXPECT_EQ(fabric.put_bytes(), puts);
      EXPECT_EQ(fabric.got_bytes(), gets);
      EXPECT_EQ(fabric.barriers_of_all(), barriers);
    });
    EXPECT_EQ(first_miss(attention, y), "");
  }
}

TEST(SequenceAttention, TheSameLayerGivesTheSameBits) {
  const SequenceCase of{{2, 2}, 4, 16, {5, 3, 8, 4}};
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads);
    const SequenceMemory memory(mesh, shape_of(of));
    const WholeAttention attention = whole(of);
    std::vector<float> y[2] = {std::vector<float>(attention.q.size()), std::vector<float>(attention.q.size())};
    for (std::vector<float>& of_run : y) {
      ShmThreads world(4, options_for(memory));
      run_team(4, [&](TeamMember& member) {
        const auto fabric = world.rank(member.rank());
        run_rank(*fabric, ranks_from(0, 4), strategy, mesh, of, attention, of_run);
      });
    }
    EXPECT_EQ(y[0], y[1]) << name_of(strategy);
  }
}

}  // namespace
}  // namespace heddle

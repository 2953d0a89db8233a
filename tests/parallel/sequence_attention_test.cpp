// Strategies of sequence parallelism on ranks that are threads, against attention in float64 over the whole sequence.
#include "parallel/sequence/sequence_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/team.h"
#include "fabric/counted_fabric.h"
#include "fabric/shm/threads.h"
#include "fused/piece_attention/attention_oracle.h"
#include "parallel/sequence/volume.h"

namespace heddle {
namespace {

struct SequenceCase {
  Placement placement;
  int num_heads, head_dim;
  std::vector<int> tokens;  // of each rank
  int batch = 1;
  DType dtype = DType::float32;
  PieceMask mask = PieceMask::full;
  std::optional<int> degree = {};
};

SequenceShape shape_of(const SequenceCase& of) {
  return {of.batch, of.num_heads, of.head_dim, of.dtype, of.mask, of.tokens};
}

WholeAttention whole(const SequenceCase& of, unsigned seed = 1) {
  const int tokens = static_cast<int>(shape_of(of).num_tokens());
  const std::size_t count = static_cast<std::size_t>(of.batch) * tokens * of.num_heads * of.head_dim;
  return {.batch = of.batch,
          .num_heads = of.num_heads,
          .num_kv_heads = of.num_heads,
          .head_dim = of.head_dim,
          .num_queries = tokens,
          .num_keys = tokens,
          .scale = 1 / std::sqrt(static_cast<float>(of.head_dim)),
          .mask = of.mask,
          .dtype = of.dtype,
          .q = normal_numbers(count, seed, of.dtype),
          .k = normal_numbers(count, seed + 1, of.dtype),
          .v = normal_numbers(count, seed + 2, of.dtype)};
}

// Copies the tokens [first, first + count) of each member of the batch, between a whole tensor and a rank's.
template <class Copy>
void for_tokens(const WholeAttention& of, int first, int count, const Copy& copy) {
  const std::size_t row = static_cast<std::size_t>(of.num_heads) * of.head_dim;
  for (int b = 0; b < of.batch; ++b)
    copy((static_cast<std::size_t>(b) * of.num_queries + first) * row, static_cast<std::size_t>(b) * count * row,
         count * row);
}

std::vector<std::byte> tokens_of(const WholeAttention& of, const std::vector<float>& x, int first, int count) {
  std::vector<std::byte> part(static_cast<std::size_t>(of.batch) * count * of.num_heads * of.head_dim *
                              size_of(of.dtype));
  for_tokens(of, first, count, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
    convert(x.data() + in_whole, DType::float32, part.data() + in_part * size_of(of.dtype), of.dtype, n);
  });
  return part;
}

// What one rank does with its fabric: some layers, each with another operand; returns its y of the last.
void run_rank(Fabric& fabric, std::span<const int> team, SequenceStrategy strategy, const SequenceMesh& mesh,
              const SequenceCase& of, const WholeAttention& attention, std::vector<float>& y, int layers = 1) {
  ThreadPool pool(1);
  Stream stream(pool);
  SequenceAttention layer(fabric, team, strategy, mesh, shape_of(of));
  const int rank = static_cast<int>(std::ranges::find(team, fabric.rank()) - team.begin());
  const int first = std::accumulate(of.tokens.begin(), of.tokens.begin() + rank, 0);
  const int count = of.tokens[static_cast<std::size_t>(rank)];
  const auto q = tokens_of(attention, attention.q, first, count), k = tokens_of(attention, attention.k, first, count),
             v = tokens_of(attention, attention.v, first, count);
  std::vector<std::byte> mine(q.size() + 1);
  for (int i = 0; i < layers; ++i) layer.attend(q.data(), k.data(), v.data(), mine.data(), attention.scale, stream);
  layer.synchronize(stream);
  for_tokens(attention, first, count, [&](std::size_t in_whole, std::size_t in_part, std::size_t n) {
    convert(mine.data() + in_part * size_of(of.dtype), of.dtype, y.data() + in_whole, DType::float32, n);
  });
}

Ranks ranks_from(int first, int count) {
  Ranks ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

FabricOptions options_for(const SequenceMemory& memory) {
  return {.heap_bytes = SequenceAttention::heap_bytes(memory), .deadline = std::chrono::seconds(60)};
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

  expect_near_float64(attention, y);
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
    {{1, 1}, 2, 32, {9}},                                 // one rank
    {{2, 1}, 4, 32, {20, 13}},                            // two machines of one GPU, ragged
    {{1, 2}, 2, 16, {7, 8}, 2},                           // one machine; a batch
    {{3, 1}, 3, 16, {5, 9, 1}},                           //
    {{2, 2}, 4, 32, {11, 8, 140, 3}},                     // a rank with more than a block of keys
    {{2, 2}, 2, 16, {6, 6, 6, 6}},                        // 2 heads on 4 ranks: P_u is 2
    {{2, 2}, 3, 16, {6, 0, 2, 5}},                        // P_u is 1; a rank without tokens
    {{4, 1}, 4, 16, {8, 7, 6, 5}},                        // Torus over four machines
    {{4, 1}, 6, 16, {4, 4, 4, 5}},                        // P_u is 2 on 4 machines: Torus over half of them
    {{3, 2}, 4, 16, {3, 4, 5, 6, 7, 8}},                  // rings of 3 that cross machines of 2
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

TEST(SequenceAttention, ManyLayersInARowReuseTheMemory) {
  const SequenceCase of{{2, 2}, 4, 16, {5, 3, 8, 4}};
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads);
    const SequenceMemory memory(mesh, shape_of(of));
    const WholeAttention attention = whole(of);
    std::vector<float> y(attention.q.size());
    ShmThreads world(4, options_for(memory));
    run_team(4, [&](TeamMember& member) {
      const auto fabric = world.rank(member.rank());
      run_rank(*fabric, ranks_from(0, 4), strategy, mesh, of, attention, y, 20);
    });
    expect_near_float64(attention, y);
  }
}

// CFG parallelism: each half of the batch has a team of its own, beside the other.
TEST(SequenceAttention, TwoHalvesOfABatchRunBesideEachOther) {
  const SequenceCase half{{2, 2}, 4, 16, {5, 3, 8, 4}};
  const SequenceStrategy strategy = SequenceStrategy::one_sided;
  const SequenceMesh mesh = make_sequence_mesh(strategy, half.placement, half.num_heads);
  const SequenceMemory memory(mesh, shape_of(half));
  const WholeAttention attentions[2] = {whole(half, 1), whole(half, 7)};
  std::vector<float> y[2] = {std::vector<float>(attentions[0].q.size()), std::vector<float>(attentions[1].q.size())};
  ShmThreads world(8, options_for(memory));
  run_team(8, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    const int of = member.rank() / 4;
    run_rank(*fabric, ranks_from(4 * of, 4), strategy, mesh, half, attentions[of], y[of], 3);
  });
  expect_near_float64(attentions[0], y[0]);
  expect_near_float64(attentions[1], y[1]);
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

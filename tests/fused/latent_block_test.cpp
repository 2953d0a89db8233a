// latent_block on the CPU: the operator, and its protocol with a thread for each block of each cluster, against the
// oracle and against the separate operators; its traffic against the formulas. Under ThreadSanitizer it also shows that
// barriers and counters alone order all accesses.
#include "fused/latent_block/latent_block.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/dtype_switch.h"
#include "device/cluster/cluster_model.h"
#include "device/wait_watch.h"
#include "fused/latent_block/latent_block_body.cuh"
#include "fused/latent_block/latent_block_cpu.h"
#include "fused/latent_block/latent_block_traffic.h"
#include "fused/latent_block/latent_head_body.cuh"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent_kv_write.h"
#include "kernels/linear/head_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/rmsnorm.h"
#include "latent_block_case.h"

namespace heddle {
namespace {

constexpr int kLatentSharedVectors = 6000;
struct LatentShared {
  LatentBlockBarriers<MbarrierModel> barriers;
  Vector16 memory[kLatentSharedVectors];
};
using LatentCluster = ClusterModel<LatentShared>;

// All units at once. The bytes that each cluster pushed.
template <class T>
std::vector<std::int64_t> run_latent_clusters(const LatentBlockParams& params) {
  using Team = LatentCluster::Team;
  using Work = LatentBlockCpuWork<T, Team>;
  const LatentBlockShape shape = shape_of(params);
  EXPECT_LE(
      shape.uses_grid_barriers() ? LatentBlockMemory(shape, sizeof(T)).end : LatentHeadMemory(shape, sizeof(T)).end,
      kLatentSharedVectors);
  const LatentBlockScratch scratch = scratch_of(params);
  auto* const partials = static_cast<float*>(params.partials.data);
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(shape.units()));
  {
    std::vector<std::jthread> clusters;
    clusters.reserve(bytes.size());
    for (int unit = 0; unit < shape.units(); ++unit)
      clusters.emplace_back([&, unit] {
        LatentCluster cluster(shape.mapping.cluster);
        cluster.run([](const Team& team, LatentShared& shared) { shared.barriers.init(team); },
                    [&](const Team& team, LatentShared& shared) {
                      Work work(params, shape, team, unit);
                      team.dawdle();
                      if (shape.uses_grid_barriers())
                        LatentBlockBody<T, Team, MbarrierModel, Work>(team, shape, unit, shared.barriers, shared.memory,
                                                                      work, waits)
                            .run(scratch, partials);
                      else
                        LatentHeadBody<T, Team, MbarrierModel, Work>(team, shape, unit, shared.barriers, shared.memory,
                                                                     work, waits)
                            .run(scratch, partials);
                    });
        bytes[static_cast<std::size_t>(unit)] = cluster.bytes_pushed();
      });
  }
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  return bytes;
}

std::vector<std::int64_t> run_latent_clusters(const LatentBlockParams& params) {
  return with_element(params.down.dtype, [&]<class T>() { return run_latent_clusters<T>(params); });
}

void check(const LatentBlockCase& of, const LatentBlockOperands& operands, const LatentBlockResult& expected) {
  expect_close(of, expected, operands.partials, operands.new_residual,
               new_rows(of, operands.cache, operands.cache.keys().floats()));
}

constexpr LatentFlow kAlg4 = LatentFlow::head_a_cluster;
const std::vector<int> kSixteenContexts{1, 2, 15, 16, 17, 31, 32, 33, 3, 64, 65, 7, 40, 1, 90, 5};

const LatentBlockCase kLatentCases[] = {
    {.contexts = {1}},
    {.contexts = {2}, .mapping = {.cluster = 4}},
    {.contexts = {100}, .mapping = {.cluster = 2, .units = 2}},
    {.contexts = {100}, .mapping = {.cluster = 2, .units = 4, .splits = 4}, .partials = 4},
    {.contexts = {50, 1, 130}, .mapping = {.cluster = 4, .units = 2, .splits = 3}, .partials = 2, .deltas = 8},
    {.contexts = {50, 1, 130}, .page_size = 64, .mapping = {.cluster = 4, .units = 3, .splits = 2}, .deltas = 0},
    // Heads that no cluster divides evenly, no two widths alike.
    {.contexts = {33, 20},
     .hidden = 72,
     .heads = 3,
     .nope = 12,
     .rope = 10,
     .value = 22,
     .latent = 40,
     .page_size = 5,
     .mapping = {.cluster = 4, .units = 2, .splits = 2}},
    // A rank's slice of one head.
    {.contexts = {70}, .heads = 1, .mapping = {.cluster = 8, .splits = 2}},
    {.contexts = {29, 3},
     .hidden = 128,
     .mapping = {.cluster = 8, .units = 2},
     .partials = 2,
     .dtype = DType::bfloat16,
     .deltas_dtype = DType::bfloat16},
    {.contexts = {29, 3}, .mapping = {.cluster = 2, .units = 4, .splits = 5}, .partials = 3, .dtype = DType::float16},
    {.contexts = {400}, .mapping = {.cluster = 16, .units = 1}},
    {.contexts = kSixteenContexts, .page_size = 3, .mapping = {.cluster = 2, .units = 4}},
    {.contexts = kSixteenContexts, .mapping = {.cluster = 1, .units = 4, .splits = 8}, .dtype = DType::bfloat16},
    {.contexts = {100}, .mapping = {.cluster = 1, .units = 4, .flow = kAlg4}},
    {.contexts = {100}, .mapping = {.cluster = 4, .units = 4, .flow = kAlg4}, .partials = 2},
    {.contexts = {33, 1, 20},
     .hidden = 72,
     .heads = 3,
     .nope = 12,
     .rope = 10,
     .value = 22,
     .latent = 40,
     .page_size = 5,
     .mapping = {.cluster = 8, .units = 3, .flow = kAlg4},
     .deltas = 3},
    {.contexts = {29, 64},
     .mapping = {.cluster = 2, .units = 4, .flow = kAlg4},
     .partials = 4,
     .dtype = DType::bfloat16},
};

class LatentBlock : public testing::TestWithParam<int> {
 protected:
  const LatentBlockCase& of() const { return kLatentCases[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Cases, LatentBlock, testing::Range(0, static_cast<int>(std::size(kLatentCases))));

TEST_P(LatentBlock, ComputesTheAttentionBlockOnTheCpu) {
  LatentBlockOperands operands(of());
  const LatentBlockResult expected = oracle_of(of(), operands);
  const LatentBlockParams params = operands.params(of());
  on_cpu(2, [&](Stream& stream) { latent_block(params, stream); });
  check(of(), operands, expected);
}

TEST_P(LatentBlock, ComputesItWithAThreadForEachBlockOfEachCluster) {
  LatentBlockOperands operands(of());
  const LatentBlockResult expected = oracle_of(of(), operands);
  const LatentBlockParams params = operands.params(of());
  for (int call = 0; call < 2; ++call) {  // the second finds the counters as the first left them
    run_latent_clusters(params);
    check(of(), operands, expected);
  }
}

TEST_P(LatentBlock, SendsAsManyBytesAsTheFormulasSay) {
  LatentBlockOperands operands(of());
  const LatentBlockParams params = operands.params(of());
  const std::vector<std::int64_t> bytes = run_latent_clusters(params);
  for (int unit = 0; unit < of().mapping.units; ++unit)
    EXPECT_EQ(bytes[static_cast<std::size_t>(unit)],
              latent_block_traffic(shape_of(params), unit, static_cast<int>(size_of(of().dtype))).total())
        << "cluster " << unit;
}

// Clusters and splits of other sizes after each other, with the counters that the last left.
TEST(LatentBlockScratch, IsSharedByCallsOfOtherShapes) {
  LatentBlockCase of{.contexts = {50, 1, 9}, .mapping = {.cluster = 2, .units = 4, .splits = 3}, .partials = 2};
  LatentBlockOperands operands(of);
  operands.params(of);  // the largest scratch first
  const LatentBlockResult expected = oracle_of(of, operands);
  for (const LatentBlockMapping& mapping :
       {of.mapping, LatentBlockMapping{.cluster = 1, .units = 2}, LatentBlockMapping{.cluster = 4, .units = 2},
        LatentBlockMapping{.cluster = 2, .units = 4, .flow = kAlg4}, of.mapping}) {
    of.mapping = mapping;
    run_latent_clusters(operands.params(of));
    check(of, operands, expected);
  }
}

// B.1, with what it leaves out: a head has no rotated elements, and the sums and maxima are taken off.
TEST(LatentBlockTraffic, OfAlg4IsThePapersFormula) {
  for (const int cluster : {2, 4, 8, 16}) {
    LatentBlockShape shape{1, 2048, 16, 128, 0, 128, 512, 1, {cluster, 16, 1, kAlg4}};
    const LatentTraffic traffic = latent_block_traffic(shape, 3, 2);
    const std::int64_t float_bytes = 4, part = 512 / cluster;
    const PaperLatentSizes sizes{.query_part_bytes = 128 / cluster * float_bytes,
                                 .latent_part_bytes = part * float_bytes,
                                 .absorbed_part_bytes = part * 2,
                                 .reduced_bytes = 512 * float_bytes,
                                 .value_bytes = 128 * float_bytes};
    const std::int64_t of_sums =
        schedule::cluster_reduce_traffic_bytes(LatentBlockShape::kRecordWords * float_bytes, cluster);
    EXPECT_EQ(traffic.total() - traffic.maxima - of_sums, paper_latent_traffic_bytes(sizes, cluster));
    // As printed, line 10 would send one part of the attention output.
    PaperLatentSizes printed = sizes;
    printed.reduced_bytes = part * float_bytes;
    EXPECT_EQ(paper_latent_traffic_bytes(sizes, cluster) - paper_latent_traffic_bytes(printed, cluster),
              schedule::cluster_reduce_traffic_bytes((512 - part) * float_bytes, cluster));
  }
}

// What docs/notes/experts.md says of DeepSeek-V2-Lite in clusters of eight, of one token.
TEST(LatentBlockTraffic, OfDeepseekV2Lite) {
  const LatentBlockShape ours{1, 2048, 16, 128, 64, 128, 512, 8, {8, 16, 16}};
  LatentBlockShape alg4 = ours;
  alg4.mapping = {8, 16, 1, kAlg4};
  EXPECT_EQ(latent_block_traffic(ours, 0, 2).queries, 56 * 24 * 4);
  EXPECT_EQ(latent_block_traffic(ours, 0, 2).attended, 56 * 2 * 516 * 4);
  EXPECT_EQ(latent_block_traffic(ours, 0, 2).values, 56 * 16 * 2);
  EXPECT_EQ(latent_block_traffic(alg4, 0, 2).queries, 56 * 24 * 4);
  EXPECT_EQ(latent_block_traffic(alg4, 0, 2).latents, 56 * 72 * 4);
  EXPECT_EQ(latent_block_traffic(alg4, 0, 2).absorbed, 56 * 64 * 2);
  EXPECT_EQ(latent_block_traffic(alg4, 0, 2).attended, 24 * 516 * 4);
  EXPECT_EQ(latent_block_traffic(alg4, 0, 2).values, 24 * 128 * 4);
}

// The separate operators that a plain decode step has, in float32.
Rows plain_output(const LatentBlockCase& of, const LatentBlockParams& params, int threads) {
  const std::int64_t tokens = of.tokens(), queries = std::int64_t{of.heads} * of.query(), cached = of.cached();
  Rows z(tokens, of.hidden), x(tokens, of.hidden), down(tokens, of.down_rows());
  Rows query(tokens, of.heads * cached), attended(tokens, of.heads * cached);
  Rows values(tokens, std::int64_t{of.heads} * of.value), y(tokens, of.hidden);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (int i = 0; i < of.hidden; ++i)
      z.row(t)[i] =
          BlockRowsCpu<float>::pending_sum(params.residual, params.deltas, params.num_deltas, static_cast<int>(t), i);
  on_cpu(threads, [&](Stream& stream) {
    rmsnorm({.x = z, .weight = params.norm, .y = x, .eps = params.eps}, stream);
    linear({.x = x, .weight = params.down, .y = down}, stream);
    const Tensor q = Tensor(down).column_slice(0, queries), latent = Tensor(down).column_slice(queries, cached);
    const Tensor unrotated = latent.column_slice(0, of.latent);
    rmsnorm({.x = unrotated, .weight = params.latent_norm, .y = unrotated, .eps = params.latent_eps}, stream);
    head_linear({.x = q.column_slice(0, queries - of.rope),
                 .x_stride = of.query(),
                 .weight = params.to_latents,
                 .num_heads = of.heads,
                 .y = Tensor(query).column_slice(0, of.heads * cached - of.rope),
                 .y_stride = cached},
                stream);
    latent_kv_write({.q = q,
                     .latent = latent,
                     .query = query,
                     .positions = params.positions,
                     .inv_freq = params.inv_freq,
                     .scale = params.rope_scale,
                     .num_heads = of.heads,
                     .rope_dim = of.rope,
                     .kv = params.kv,
                     .sequences = params.sequences},
                    stream);
    attention({.q = query,
               .y = attended,
               .kv = params.kv,
               .sequences = params.sequences,
               .num_heads = of.heads,
               .scale = params.scale,
               .value_dim = of.latent},
              stream);
    head_linear({.x = Tensor(attended).column_slice(0, of.heads * cached - of.rope),
                 .x_stride = cached,
                 .weight = params.from_latents,
                 .num_heads = of.heads,
                 .y = values,
                 .y_stride = of.value},
                stream);
    linear({.x = values, .weight = params.output, .y = y}, stream);
  });
  return y;
}

TEST(LatentBlockOnTheCpu, AgreesWithTheSeparateOperators) {
  const LatentBlockCase cases[] = {
      {.contexts = {1}},
      {.contexts = {300, 1, 17, 129}, .page_size = 16},
      {.contexts = kSixteenContexts, .page_size = 5},
      // DeepSeek-V2-Lite's heads, two of them: a rank of eight.
      {.contexts = {150, 9}, .heads = 2, .nope = 128, .rope = 64, .value = 128, .latent = 512, .page_size = 64},
  };
  for (LatentBlockCase of : cases) {
    of.mapping = latent_mapping_of_cpu(of.heads);
    LatentBlockOperands operands(of), plain(of);
    const LatentBlockParams params = operands.params(of);
    on_cpu(3, [&](Stream& stream) { latent_block(params, stream); });
    const Rows expected = plain_output(of, plain.params(of), 2);
    for (int t = 0; t < of.tokens(); ++t)
      for (int i = 0; i < of.hidden; ++i)
        ASSERT_NEAR(operands.partials.row(t)[i], expected.row(t)[i], 2e-5) << of.contexts.size() << " texts";
    const std::vector<double> rows = new_rows(of, operands.cache, operands.cache.keys().floats());
    const std::vector<double> plain_rows = new_rows(of, plain.cache, plain.cache.keys().floats());
    for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(rows[i], plain_rows[i], 1e-5);
  }
}

// Neither threads, pages nor neighbours; nor the number of calls.
TEST(LatentBlockOnTheCpu, HasTheSameBitsWhateverIsBesideIt) {
  const auto output_of = [](std::vector<int> contexts, int page_size, int threads, int calls) {
    LatentBlockCase of{.contexts = std::move(contexts), .page_size = page_size};
    of.mapping = latent_mapping_of_cpu(of.heads);
    LatentBlockOperands operands(of);
    const LatentBlockParams params = operands.params(of);
    for (int call = 0; call < calls; ++call) on_cpu(threads, [&](Stream& stream) { latent_block(params, stream); });
    return bits(operands.partials, 0, 1);
  };
  const auto expected = output_of({143}, 8, 1, 1);
  EXPECT_EQ(output_of({143}, 8, 3, 2), expected);
  EXPECT_EQ(output_of({143}, 11, 2, 1), expected);
  // Deltas of another token lie behind the first one's, so it is the only row that is the same.
  EXPECT_EQ(output_of({143, 600, 1}, 8, 2, 1), expected);
}

// The heads of two ranks, each with its own rows and columns: their outputs add up.
TEST(LatentBlockOnTheCpu, RanksOfHalfTheHeadsAddUp) {
  const LatentBlockCase whole{.contexts = {70, 4}, .mapping = {.units = 2}};
  LatentBlockOperands operands(whole);
  const LatentBlockResult expected = oracle_of(whole, operands);
  std::vector<double> sums(expected.y.size());
  for (int rank = 0; rank < 2; ++rank) {
    LatentBlockCase half = whole;
    half.heads = 2;
    LatentBlockOperands own(half);
    LatentBlockParams params = own.params(half), all = operands.params(whole);
    const auto rows_of = [&](const Weight& weight, std::int64_t first, std::int64_t rows) {
      Weight part = weight;
      part.blocks = {};
      part.blocks[0] = {weight.row(first), rows};
      part.out_features = rows;
      return part;
    };
    params.residual = all.residual, params.deltas = all.deltas, params.norm = all.norm;
    params.latent_norm = all.latent_norm;
    params.down = rows_of(all.down, rank * 2 * whole.query(), 2 * whole.query());
    params.down.blocks[1] = {all.down.row(4 * whole.query()), whole.cached()};
    params.down.out_features += whole.cached();
    params.to_latents = rows_of(all.to_latents, rank * 2 * whole.latent, 2 * whole.latent);
    params.from_latents = rows_of(all.from_latents, rank * 2 * whole.value, 2 * whole.value);
    const std::vector<float> output = operands.output.floats();
    std::vector<float> columns;
    for (int row = 0; row < whole.hidden; ++row)
      for (int c = 0; c < 2 * whole.value; ++c)
        columns.push_back(output[static_cast<std::size_t>(row * 4 * whole.value + rank * 2 * whole.value + c)]);
    const Elements own_output(columns, DType::float32);
    params.output = one_block(own_output, DType::float32, whole.hidden, 2 * whole.value);
    on_cpu(2, [&](Stream& stream) { latent_block(params, stream); });
    for (int t = 0; t < whole.tokens(); ++t)
      for (int i = 0; i < whole.hidden; ++i)
        sums[static_cast<std::size_t>(t * whole.hidden + i)] += static_cast<double>(own.partials.row(t)[i]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], expected.y[i], 3e-5);
}

TEST(LatentBlockOnTheCpu, ANaNReachesTheOutputOfItsTokenAlone) {
  const LatentBlockCase of{.contexts = {20, 40}, .mapping = {.units = 4, .splits = 2}};
  LatentBlockOperands operands(of);
  operands.residual.row(1)[3] = kPoison;
  const LatentBlockParams params = operands.params(of);
  on_cpu(2, [&](Stream& stream) { latent_block(params, stream); });
  for (int i = 0; i < of.hidden; ++i) {
    EXPECT_TRUE(std::isfinite(operands.partials.row(0)[i]));
    EXPECT_TRUE(std::isnan(operands.partials.row(1)[i]));
  }
}

TEST(LatentBlockShape, SaysWhyItDoesNotTakeAShape) {
  const LatentBlockShape shape{1, 64, 4, 16, 8, 16, 32, 1, {4, 4, 2}};
  EXPECT_EQ(why_not_fused(shape, DType::float32, DeviceKind::cpu), "");
  const auto why = [&](auto change) {
    LatentBlockShape other = shape;
    change(other);
    return why_not_fused(other, DType::float32, DeviceKind::cpu);
  };
  EXPECT_EQ(why([](auto& s) { s.tokens = 17; }), "17 tokens, the fused block takes up to 16");
  EXPECT_EQ(why([](auto& s) { s.mapping.cluster = 3; }), "clusters of 3 blocks, expected 1, 2, 4, 8 or 16");
  EXPECT_EQ(why([](auto& s) { s.mapping.units = 5; }), "5 clusters for 4 heads");
  EXPECT_EQ(why([](auto& s) { s.mapping.splits = 0; }), "0 splits, expected at least 1");
  EXPECT_EQ(why([](auto& s) { s.hidden = 60; }), "hidden size 60 is not a multiple of 8");
  EXPECT_EQ(why([](auto& s) { s.rope_dim = 7; }), "7 rotated elements, expected an even number");
  EXPECT_EQ(why([](auto& s) { s.mapping.flow = kAlg4; }),
            "a head a cluster, and 4 clusters for 4 heads, tokens in 2 splits");
}

TEST(LatentBlockParams, AreChecked) {
  const LatentBlockCase of{.contexts = {3}};
  LatentBlockOperands operands(of);
  const auto expect = [&](auto change, const std::string& part) {
    LatentBlockParams params = operands.params(of);
    change(params);
    expect_invalid([&] { on_cpu(1, [&](Stream& stream) { latent_block(params, stream); }); }, part);
  };
  expect([](auto& params) { params.new_residual = params.residual; }, "new_residual overlaps residual");
  expect([](auto& params) { params.num_deltas = 9; }, "num_deltas is 9, expected 0 to 8");
  expect([](auto& params) { params.num_partials = 9; }, "num_partials is 9, expected 1 to 8");
  expect([](auto& params) { params.num_partials = 2; }, "no more than the 1 units");
  expect([](auto& params) { params.scratch_bytes = 16; }, "has 16 bytes of scratch");
  expect([](auto& params) { params.num_heads = 3; }, "down is [136, 64], expected [112, 64]");
  expect([](auto& params) { params.value_dim = 8; }, "from_latents is [96, 32], expected [32, 32]");
  expect([](auto& params) { params.kv.dtype = DType::float16; }, "the cache is float16, down float32");
  expect([](auto& params) { params.kv.num_kv_heads = 2; }, "the cache has 2 heads, expected one latent");
  expect([](auto& params) { params.kv.shard = {0, 2}; }, "ranks divide the latents");
  expect([](auto& params) { params.sequences.max_query_len = 2; }, "expected one each");
  expect([](auto& params) { params.mapping.cluster = 5; }, "clusters of 5 blocks");
}

}  // namespace
}  // namespace heddle

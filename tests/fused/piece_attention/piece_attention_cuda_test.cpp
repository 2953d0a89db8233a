// Attention over pieces on a GPU, against float64. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/graph.h"
#include "fused/piece_attention/head_groups.h"
#include "fused/piece_attention/piece_case.h"
#include "kernels/cuda_operands.h"

namespace heddle {
namespace {

const PieceCase kGpuCases[] = {
    {1, 1, 1, 32, {1}, {1}},                      // one key: y is its value
    {1, 2, 2, 64, {5, 1, 40}, {70, 3}},           //
    {2, 3, 3, 128, {64, 65}, {128, 129, 1}},      // around a tile of rows and a tile of keys
    {2, 4, 2, 64, {33, 0, 17}, {0, 200, 0, 31}},  // GQA; pieces without tokens
    {1, 2, 2, 64, {193, 384}, {384, 257}},        // around a work tile of three warpgroups
    {1, 1, 1, 128, {300}, {640, 130}},            // rings of tiles turn more than once
    {2, 40, 40, 64, {200, 3}, {150}},             // more work tiles than SMs
    {1, 70, 35, 32, {200, 3, 193}, {33, 300}},    //
    {1, 140, 140, 128, {20}, {130, 40}},          //
    // Divided works: of one round (each over many SMs), of two, and after whole ones.
    {1, 3, 1, 128, {130, 3}, {700, 0, 100}},
    {1, 140, 140, 64, {5}, {700}},
    {2, 70, 35, 32, {3, 1}, {530, 120}},
    {2, 70, 70, 128, {5}, {640, 10}},
    {1, 2, 2, 128, {50}, {300}, {}, {}, 1e3f},  // all weight on one key
    {1, 2, 2, 64, {50}, {300}, {}, {}, 1e3f},   //
    {1, 2, 2, 64, {50}, {300}, {}, {}, 1e-2f},  // nearly equal weights
    {1, 2, 2, 32, {30, 130, 7}, {30, 130, 7}, {}, PieceMask::causal},
    {1, 4, 2, 64, {100, 257, 1}, {300, 58}, {}, PieceMask::causal},
    {2, 3, 3, 128, {100, 257}, {100, 257}, {}, PieceMask::causal},
    {1, 2, 2, 128, {64, 64, 64}, {64, 64, 64}, {}, PieceMask::causal},
};

PieceCase of_dtype(PieceCase of, DType dtype) {
  of.dtype = dtype;
  return of;
}

// A case's operands in the GPU's memory.
class GpuPieces {
 public:
  explicit GpuPieces(const PieceOperands& operands)
      : operands_(operands),
        host_(operands),
        q_(host_.q),
        k_(host_.k),
        v_(host_.v),
        y_(host_.y),
        o_(host_.o),
        l_(host_.l),
        m_(host_.m),
        workspace_(
            std::vector<std::byte>(piece_attention_workspace(PieceMemory::shape(operands.of), kGpu), std::byte{0xff})) {
    for (QueryPiece& piece : host_.queries) {
      piece.q = moved(piece.q, host_.q, q_);
      piece.y = moved(piece.y, host_.y, y_);
      piece.o = o_.data() + (piece.o - host_.o.data());
      piece.l = l_.data() + (piece.l - host_.l.data());
      piece.m = m_.data() + (piece.m - host_.m.data());
    }
    for (KeyValuePiece& piece : host_.keys_values) {
      piece.k = moved(piece.k, host_.k, k_);
      piece.v = moved(piece.v, host_.v, v_);
    }
  }

  const std::vector<QueryPiece>& queries() const { return host_.queries; }
  std::vector<KeyValuePiece>& keys_values() { return host_.keys_values; }
  PieceLayout layout(const std::vector<QueryPiece>& queries, const std::vector<KeyValuePiece>& keys_values) const {
    return {PieceMemory::shape(operands_.of), queries, keys_values, kGpu};
  }
  PieceLayout layout() const { return layout(host_.queries, host_.keys_values); }
  PieceAttentionParams params(const PieceLayout& layout, PieceStart start, PieceEnd end) const {
    return {&layout, operands_.scale, start, end, operands_.mask};
  }
  void run(const PieceLayout& layout, PieceStart start = PieceStart::fresh, PieceEnd end = PieceEnd::finalise) {
    on_gpu([&](Stream& stream) { piece_attention(params(layout, start, end), lane(stream)); });
  }
  // With a workspace, whose contents do not matter.
  Lane lane(Stream& stream) { return {stream, Workspace{workspace_.data(), workspace_.count()}}; }
  std::vector<std::byte> y() const { return y_.values(); }
  std::vector<float> output() const { return as_floats(y_.values(), operands_.dtype); }
  void clear_output() { y_.set(std::vector<std::byte>(y_.count(), std::byte{0xff})); }
  std::vector<float> sums() const { return l_.values(); }

 private:
  static std::byte* moved(const void* from, const std::vector<std::byte>& host, GpuArray<std::byte>& device) {
    return device.data() + (static_cast<const std::byte*>(from) - host.data());
  }

  const PieceOperands& operands_;
  PieceMemory host_;
  GpuArray<std::byte> q_, k_, v_, y_;
  GpuArray<float> o_, l_, m_;
  GpuArray<std::byte> workspace_;
};

PieceOperands gpu_operands(const PieceCase& of) {
  PieceOperands operands(of);
  operands.rounds_weights = true;
  return operands;
}

class PieceAttentionOnGpu : public OnGpu, public testing::WithParamInterface<std::tuple<int, DType>> {
 protected:
  static PieceCase of() { return of_dtype(kGpuCases[std::get<0>(GetParam())], std::get<1>(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(Cases, PieceAttentionOnGpu,
                         testing::Combine(testing::Range(0, static_cast<int>(std::size(kGpuCases))),
                                          testing::Values(DType::bfloat16, DType::float16)));

TEST_P(PieceAttentionOnGpu, MatchesFloat64InOneCallAndRepeatsItsBits) {
  const PieceOperands operands = gpu_operands(of());
  GpuPieces gpu(operands);
  const PieceLayout layout = gpu.layout();
  gpu.run(layout);
  const std::vector<std::byte> first = gpu.y();
  EXPECT_EQ(first_miss(operands, gpu.output()), "");
  gpu.clear_output();
  gpu.run(layout);
  EXPECT_EQ(gpu.y(), first);
}

TEST_P(PieceAttentionOnGpu, CarriedOverACallForEachPieceMatchesFloat64) {
  const PieceOperands operands = gpu_operands(of());
  GpuPieces gpu(operands);
  const std::size_t count = gpu.keys_values().size();
  for (std::size_t i = 0; i < count; ++i)
    gpu.run(gpu.layout(gpu.queries(), {gpu.keys_values()[i]}), i == 0 ? PieceStart::fresh : PieceStart::carried,
            i + 1 < count ? PieceEnd::carry : PieceEnd::finalise);
  EXPECT_EQ(first_miss(operands, gpu.output()), "");
}

// Without a workspace no works are divided.
TEST_P(PieceAttentionOnGpu, AQueryPieceInACallOfItsOwnGivesTheBitsOfOneCallWhereWorksAreWhole) {
  const PieceOperands operands = gpu_operands(of());
  GpuPieces gpu(operands);
  const auto run = [&](const PieceLayout& layout) {
    on_gpu([&](Stream& stream) { piece_attention(gpu.params(layout, PieceStart::fresh, PieceEnd::finalise), stream); });
  };
  run(gpu.layout());
  const std::vector<std::byte> whole = gpu.y();
  EXPECT_EQ(first_miss(operands, gpu.output()), "");
  gpu.clear_output();
  for (const QueryPiece& piece : gpu.queries()) run(gpu.layout({piece}, gpu.keys_values()));
  EXPECT_EQ(gpu.y(), whole);
}

TEST_P(PieceAttentionOnGpu, AGraphRepeatsACarryAndAFinalisingCall) {
  const PieceOperands operands = gpu_operands(of());
  GpuPieces gpu(operands);
  const PieceLayout layout = gpu.layout(), none = gpu.layout(gpu.queries(), {});
  std::vector<std::byte> first;
  on_gpu([&](Stream& stream) {
    const auto both = [&] {
      piece_attention(gpu.params(layout, PieceStart::fresh, PieceEnd::carry), gpu.lane(stream));
      piece_attention(gpu.params(none, PieceStart::carried, PieceEnd::finalise), gpu.lane(stream));
    };
    both();
    const Graph graph(stream, both);
    for (int i = 0; i < 3; ++i) graph.launch(stream);
  });
  EXPECT_EQ(first_miss(operands, gpu.output()), "");
}

class PieceAttentionGpu : public OnGpu {};

// The counters of divided works are back at 0 after each call, whatever lane it ran on.
TEST_F(PieceAttentionGpu, LanesOfAnySmsTakeTheSameLayoutOneAfterTheOther) {
  const PieceOperands operands = gpu_operands({1, 140, 140, 64, {5}, {700}, DType::bfloat16});
  GpuPieces gpu(operands);
  const PieceLayout layout = gpu.layout();
  const int all = num_sms_of(kGpu);
  for (const int sms : {all, all - 1, 7, 1, all}) {
    gpu.clear_output();
    on_gpu([&](Stream& stream) {
      const Lane whole = gpu.lane(stream);
      piece_attention(gpu.params(layout, PieceStart::fresh, PieceEnd::finalise), Lane(stream, sms, whole.workspace));
    });
    EXPECT_EQ(first_miss(operands, gpu.output()), "") << sms;
  }
}

TEST_F(PieceAttentionGpu, AQueryThatSawNoKeyGetsZeros) {
  const PieceOperands operands = gpu_operands({1, 1, 1, 64, {3}, {4}, DType::bfloat16, PieceMask::causal});
  GpuPieces gpu(operands);
  for (KeyValuePiece& piece : gpu.keys_values()) piece.first_position = 2;  // queries 0 and 1 are before all keys
  gpu.run(gpu.layout(), PieceStart::fresh, PieceEnd::carry);
  EXPECT_EQ(gpu.sums()[0], 0);
  gpu.run(gpu.layout(gpu.queries(), {}), PieceStart::carried, PieceEnd::finalise);
  const std::vector<float> y = gpu.output();
  EXPECT_THAT(std::vector<float>(y.begin(), y.begin() + 128), testing::Each(0.0f));
  EXPECT_NE(y[128], 0);
}

TEST_F(PieceAttentionGpu, RejectsWhatTheKernelDoesNotTake) {
  const auto rejects = [](const PieceCase& of, const char* why) {
    const PieceOperands operands(of);
    GpuPieces gpu(operands);
    EXPECT_THAT([&] { gpu.layout(); }, testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(why)));
  };
  rejects({1, 1, 1, 32, {1}, {1}, DType::float32}, "dtype is float32");
  rejects({1, 1, 1, 96, {1}, {1}, DType::bfloat16}, "head_dim is 96, expected 32, 64 or 128");
  const PieceOperands operands(of_dtype(kGpuCases[0], DType::bfloat16));
  GpuPieces gpu(operands);
  gpu.keys_values()[0].v = static_cast<const std::byte*>(gpu.keys_values()[0].v) + 2;
  EXPECT_THAT([&] { gpu.layout(); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("key/value piece 0 has rows that are not")));
}

// In whole words of 16 bytes, and by bytes.
TEST_F(PieceAttentionGpu, HeadsAreSplitAndJoinedAsOnTheCpu) {
  for (const int head_dim : {64, 3}) {
    constexpr int kBatch = 2, kTokens = 5, kHeads = 6, kGroups = 3;
    std::vector<float> tokens(kBatch * kTokens * kHeads * static_cast<std::size_t>(head_dim));
    std::iota(tokens.begin(), tokens.end(), 0.0f);
    const std::size_t piece = tokens.size() / kGroups;
    HeadGroups groups{.batch = kBatch, .num_tokens = kTokens, .num_heads = kHeads, .head_dim = head_dim, .groups = {}};
    HeadGroups on_cpu = groups;
    std::vector<float> split(tokens.size());
    for (int group = 0; group < kGroups; ++group) on_cpu.groups.push_back(split.data() + piece * group);
    ThreadPool pool(1);
    Stream cpu(pool);
    split_heads(tokens.data(), on_cpu, cpu);
    cpu.synchronize();

    const GpuArray<float> from(tokens);
    GpuArray<float> pieces(std::vector<float>(tokens.size(), -1)), back(std::vector<float>(tokens.size(), -1));
    for (int group = 0; group < kGroups; ++group) groups.groups.push_back(pieces.data() + piece * group);
    on_gpu([&](Stream& stream) {
      split_heads(from.data(), groups, stream);
      join_heads(groups, back.data(), stream);
    });
    EXPECT_EQ(pieces.values(), split);
    EXPECT_EQ(back.values(), tokens);
  }
}

}  // namespace
}  // namespace heddle

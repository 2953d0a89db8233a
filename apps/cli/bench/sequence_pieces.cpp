#include "cli/bench/sequence_pieces.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench/baseline.h"
#include "cli/bench/device.h"
#include "cli/bench/exact_attention.h"
#include "cli/bench/operands.h"
#include "cli/bench/record.h"
#include "fused/piece_attention/piece_attention.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct LayerSize {
  int heads, head_dim, tokens;

  double flops() const { return 4.0 * heads * head_dim * tokens * static_cast<double>(tokens); }
};

// Head-major tensors of one layer, which pieces are parts of.
class PieceLayer {
 public:
  PieceLayer(BenchDevice& device, Operands& operands, const LayerSize& size)
      : device_(device),
        size_(size),
        dtype_(device.on_gpu() ? DType::bfloat16 : DType::float32),
        scale_(1 / std::sqrt(static_cast<float>(size.head_dim))),
        q_(operands.random(elements(), dtype_, 1)),
        k_(operands.random(elements(), dtype_, 1)),
        v_(operands.random(elements(), dtype_, 1)),
        y_(operands.zeros(elements() * size_of(dtype_))),
        state_(static_cast<float*>(operands.zeros(rows() * static_cast<std::size_t>(size.head_dim + 2) * 4))),
        lane_(operands.lane(piece_attention_workspace(shape(), device.device()))) {}

  // Keys and values in `count` equal pieces; one call with all of them, or a call for each.
  std::vector<PieceLayout> calls(int count, bool one_call) const {
    const PieceStrides strides = head_major(size_.heads, size_.tokens, size_.head_dim);
    const QueryPiece queries{.q = q_,
                             .q_strides = strides,
                             .y = y_,
                             .y_strides = strides,
                             .o = state_,
                             .l = state_ + elements(),
                             .m = state_ + elements() + rows(),
                             .num_tokens = size_.tokens};
    std::vector<std::vector<KeyValuePiece>> of_calls(1);
    for (int i = 0; i < count; ++i) {
      const auto first = static_cast<int>(std::int64_t{size_.tokens} * i / count);
      const auto end = static_cast<int>(std::int64_t{size_.tokens} * (i + 1) / count);
      const std::size_t at =
          static_cast<std::size_t>(first) * static_cast<std::size_t>(strides.token) * size_of(dtype_);
      if (!one_call && i > 0) of_calls.emplace_back();
      of_calls.back().push_back({static_cast<const std::byte*>(k_) + at, static_cast<const std::byte*>(v_) + at,
                                 strides, end - first, first});
    }
    std::vector<PieceLayout> layouts;
    layouts.reserve(of_calls.size());
    for (std::vector<KeyValuePiece>& pieces : of_calls)
      layouts.emplace_back(shape(), std::vector<QueryPiece>{queries}, std::move(pieces), device_.device());
    return layouts;
  }

  void enqueue(const std::vector<PieceLayout>& layouts) const {
    for (std::size_t i = 0; i < layouts.size(); ++i)
      piece_attention({.layout = &layouts[i],
                       .scale = scale_,
                       .start = i == 0 ? PieceStart::fresh : PieceStart::carried,
                       .end = i + 1 == layouts.size() ? PieceEnd::finalise : PieceEnd::carry},
                      lane_);
  }

  DType dtype() const { return dtype_; }

  // The relative error of some rows of the last head, which float64 computes.
  double error() const {
    const std::int64_t first = std::int64_t{size_.heads - 1} * size_.tokens;
    const auto whole = [&](void* data, std::span<const std::int64_t> of) {
      return HostRows(device_.stream(),
                      {data, static_cast<std::int64_t>(rows()), size_.head_dim, size_.head_dim, dtype_}, of)
          .floats();
    };
    std::vector<std::int64_t> keys(static_cast<std::size_t>(size_.tokens)), some = sampled(size_.tokens, 8);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = first + static_cast<std::int64_t>(i);
    for (std::int64_t& row : some) row += first;
    const std::vector<float> q = whole(q_, some), k = whole(k_, keys), v = whole(v_, keys);
    return relative_error(whole(y_, some), exact_attention(q, k, v, size_.head_dim, scale_));
  }

 private:
  PieceShape shape() const { return {1, size_.heads, size_.heads, size_.head_dim, dtype_}; }
  std::size_t rows() const { return static_cast<std::size_t>(size_.heads) * static_cast<std::size_t>(size_.tokens); }
  std::size_t elements() const { return rows() * static_cast<std::size_t>(size_.head_dim); }

  BenchDevice& device_;
  LayerSize size_;
  DType dtype_;
  float scale_;
  void *q_, *k_, *v_, *y_;
  float* state_;
  Lane lane_;
};

std::vector<LayerSize> sizes_of(const PieceBenchOptions& options) {
  const bool on_gpu = options.device.kind == DeviceKind::cuda;
  const int heads = options.heads.value_or(on_gpu ? 24 : 8);
  std::vector<LayerSize> sizes;
  for (const int head_dim : {64, 128}) {
    if (options.head_dim ? head_dim != 64 : !on_gpu && head_dim != 64) continue;
    std::vector<int> tokens = options.tokens;
    if (tokens.empty()) tokens = on_gpu ? std::vector<int>{4096, 9216, 37376} : std::vector<int>{512};
    if (on_gpu && options.tokens.empty() && head_dim == 64) tokens.push_back(167504);
    for (const int of : tokens) sizes.push_back({heads, options.head_dim.value_or(head_dim), of});
  }
  return sizes;
}

constexpr double kSampleSeconds = 0.08;  // until a GPU runs at the clock that it can keep

}  // namespace

PieceBench bench_pieces(const PieceBenchOptions& options) {
  BenchDevice device(options.device, 1);
  std::unique_ptr<BenchBaseline> baseline;
  if (options.compare) baseline = std::make_unique<BenchBaseline>("torch-pieces");
  const double limit = device.flops_limit(device.on_gpu() ? DType::bfloat16 : DType::float32);
  PieceBench result;
  result.cells.push_back(
      {"head_dim", "tokens", "keys and values", "ms", "TFLOP/s", "% of GEMM", "to 1 piece", "error"});
  if (baseline) result.cells[0].insert(result.cells[0].end(), {"torch TFLOP/s", "ratio"});
  ordered_json rows = ordered_json::array();
  for (const LayerSize& size : sizes_of(options)) {
    Operands operands(device.stream());
    const PieceLayer layer(device, operands, size);
    const double floor = size.flops() / limit;
    const int calls = device.on_gpu() ? std::clamp(static_cast<int>(kSampleSeconds / floor), 1, 200) : 1;
    nlohmann::json ready;
    if (baseline)
      ready = baseline->prepare({{"heads", size.heads},
                                 {"head_dim", size.head_dim},
                                 {"tokens", size.tokens},
                                 {"calls", calls},
                                 {"device", name_of(options.device)}});
    double one_piece = 0;
    struct Cut {
      int pieces;
      bool one_call;
    };
    for (const Cut cut : {Cut{1, true}, Cut{4, true}, Cut{4, false}, Cut{8, true}, Cut{8, false}}) {
      const std::vector<PieceLayout> layouts = layer.calls(cut.pieces, cut.one_call);
      const std::function<double()> ours = device.timer(calls, [&](int) { layer.enqueue(layouts); });
      const bool beside = baseline != nullptr && cut.pieces == 1;
      std::vector<double> samples, baseline_samples;
      for (int i = 0; i < options.repeats; ++i) {
        ours();
        samples.push_back(ours());
        if (!beside) continue;
        std::this_thread::sleep_for(kBaselineSettle);
        baseline_samples.push_back(baseline->sample());
        std::this_thread::sleep_for(kBaselineSettle);
      }
      const double error = layer.error(), seconds = median(samples), most_error = most_attention_error(layer.dtype());
      if (cut.pieces == 1) one_piece = seconds;
      const std::string name = fmt::format("{} piece{}, {} call{}", cut.pieces, cut.pieces > 1 ? "s" : "",
                                           cut.one_call ? 1 : cut.pieces, cut.one_call ? "" : "s");
      if (!(error <= most_error) && result.wrong.empty())
        result.wrong = fmt::format("{} x {}, {} tokens, {}", size.heads, size.head_dim, size.tokens, name);
      result.cells.push_back({std::to_string(size.head_dim), std::to_string(size.tokens), name,
                              fmt::format("{:.3f}", seconds * 1e3),
                              fmt::format("{:.3f}", size.flops() / seconds / 1e12),
                              fmt::format("{:.1f}", 100 * floor / seconds), fmt::format("{:.3f}", seconds / one_piece),
                              fmt::format("{:.1e}{}", error, error <= most_error ? "" : " WRONG")});
      rows.push_back({{"heads", size.heads},
                      {"head_dim", size.head_dim},
                      {"tokens", size.tokens},
                      {"case", name},
                      {"source", "measured"},
                      {"seconds", spread(samples)},
                      {"tflops", size.flops() / seconds / 1e12},
                      {"floor_seconds", floor},
                      {"floor_share", floor / seconds},
                      {"to_one_piece", seconds / one_piece},
                      {"relative_error", std::isfinite(error) ? ordered_json(error) : ordered_json("not finite")}});
      if (!baseline) continue;
      if (beside) {
        rows.back().update(beside_baseline(samples, baseline_samples));
        rows.back()["peer_case"] = ready;
        const double of_baseline = median(baseline_samples);
        result.cells.back().insert(result.cells.back().end(), {fmt::format("{:.3f}", size.flops() / of_baseline / 1e12),
                                                               fmt::format("{:.3f}", of_baseline / seconds)});
      } else {
        result.cells.back().insert(result.cells.back().end(), {"", ""});
      }
    }
  }
  result.fields = {{"device", name_of(options.device)},
                   {"gpu", gpu_record(options.device)},
                   {"flops_limit", limit},
                   {"rows", std::move(rows)}};
  if (baseline) result.fields["peer"] = baseline->hello();
  return result;
}

}  // namespace heddle

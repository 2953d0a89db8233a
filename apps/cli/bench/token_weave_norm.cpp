// Figures 4, 5, 6, 7 and 10 of TokenWeave: what follows each block of a model, in several ways.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "cli/bench/collective.h"
#include "cli/bench/fused.h"
#include "cli/bench/interleave.h"
#include "cli/bench/operands.h"
#include "cli/bench/quantile.h"
#include "cli/bench/token_weave.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/reduce_scatter.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

constexpr float kNormEps = 1e-5f;

// One way to do it, of one size.
struct NormWay {
  std::string name;
  int tokens;
  int sms = 0;  // 0: as many as it takes by itself
  std::function<void()> call;
};

// The operands of one rank, and what may be called with them.
class NormRank {
 public:
  NormRank(const TokenWeaveOptions& options, Fabric& fabric, Stream& stream, int most_tokens)
      : options_(options),
        fabric_(fabric),
        stream_(stream),
        communicator_(fabric, whole_team(fabric), stream, communicator_options(options)),
        fused_(fabric, whole_team(fabric), stream, norm_options(options, most_tokens)),
        elements_(static_cast<std::size_t>(most_tokens) * static_cast<std::size_t>(options.hidden)) {
    const std::size_t row = elements_ * size_of(options.measured_dtype());
    std::size_t used = 0;
    const auto place = [&](std::size_t bytes) { return std::exchange(used, used + (bytes + 255) / 256 * 256); };
    const std::size_t sum = place(row), residual = place(elements_ * sizeof(float)),
                      weight = place(static_cast<std::size_t>(options.hidden) * sizeof(float));
    memory_ = Buffer(used, fabric.device());
    enqueue_clear(stream, memory_.data(), used);
    fabric.synchronize(stream);
    x_ = fused_.row_memory().data();
    y_ = x_ + fused_.row_memory().size() / 2;
    Operands numbers(stream);
    enqueue_copy(stream, x_, numbers.random(elements_, options.measured_dtype(), 1), row);
    fabric.synchronize(stream);
    sum_ = memory_.data() + sum;
    residual_ = memory_.data() + residual;
    weight_ = memory_.data() + weight;
    if (fabric.has(Capability::vendor_collectives) && communicator_options(options).vendor) {
      std::byte* const window = vendor_window(communicator_.vendor(), 2 * row);
      if (window != nullptr) windows_ = Place{window, window + row};
    }
    fabric.meet();
  }

  static CommunicatorOptions communicator_options(const TokenWeaveOptions& options) {
    // Of sweeps by the number of SMs NCCL has no row, as it chooses that itself.
    const bool has_nccl = options.devices.size() > 1 && (options.figure == 4 || options.figure == 5);
    CommunicatorOptions chosen{.vendor = has_nccl};
    if (options.on_gpus()) chosen.largest_bytes = std::size_t{16} << 20;
    if (options.on_gpus()) chosen.checked_calls = 0;
    return chosen;
  }

  // The rows that a model has in symmetric memory: x and y.
  static AllReduceNormOptions norm_options(const TokenWeaveOptions& options, int most_tokens) {
    const std::size_t row = static_cast<std::size_t>(most_tokens) * static_cast<std::size_t>(options.hidden) *
                            size_of(options.measured_dtype());
    return {.row_bytes = 2 * ((row + 255) / 256 * 256)};
  }

  // What a sum reads and writes.
  struct Place {
    std::byte *x, *sum;
  };

  void all_reduce(std::int64_t tokens, const Place& place) {
    heddle::all_reduce(communicator_, {.input = place.x, .output = place.sum, .count = count(tokens), .dtype = dtype()},
                       stream_);
  }
  void all_reduce(std::int64_t tokens) { all_reduce(tokens, ordinary()); }
  // The same by NCCL.
  void by_nccl(FunctionRef<void()> collectives) {
    communicator_.force(Choice{.algorithm = Algorithm::vendor});
    collectives();
    communicator_.force(std::nullopt);
  }
  void all_reduce_on(std::int64_t tokens, int sms) {
    Choice choice = communicator_.choose(Collective::all_reduce, count(tokens) * size_of(dtype()));
    choice.blocks = std::min(sms, kMaxBlocks);
    communicator_.force(choice);
    all_reduce(tokens);
    communicator_.force(std::nullopt);
  }
  // Sizes that the ranks do not divide are rounded up.
  void reduce_scatter(std::int64_t tokens, const Place& place) {
    heddle::reduce_scatter(communicator_,
                           {.input = place.x, .output = place.sum, .count = part(tokens), .dtype = dtype()}, stream_);
  }
  void reduce_scatter(std::int64_t tokens) { reduce_scatter(tokens, ordinary()); }
  void all_gather(std::int64_t tokens, const std::byte* from, std::byte* to) {
    heddle::all_gather(communicator_, {.input = from, .output = to, .count = part(tokens), .dtype = dtype()}, stream_);
  }
  void norm(std::int64_t tokens) { norm(tokens, ordinary()); }
  void norm(std::int64_t tokens, const Place& place) {
    rmsnorm({.x = rows(place.sum, tokens, dtype()),
             .weight = weight_,
             .residual = rows(residual_, tokens, DType::float32),
             .y = rows(y_, tokens, dtype()),
             .eps = kNormEps},
            lane());
  }
  void fused(std::int64_t tokens, int sms = 0) {
    fused_({.x = rows(x_, tokens, dtype()),
            .weight = weight_,
            .residual = rows(residual_, tokens, DType::float32),
            .y = rows(y_, tokens, dtype()),
            .eps = kNormEps,
            .num_sms = sms,
            .symmetric = true},
           lane());
  }

  // Packets of few tokens only have space, and two-phase needs a token for each rank.
  bool can_force(AllReduceNormRegime regime, std::int64_t tokens) {
    fused_.force(regime);
    const AllReduceNormRegime taken = fused_.regime(tokens, options_.hidden, dtype());
    fused_.force(std::nullopt);
    return taken == regime;
  }

  // Of calls of t tokens; of sweeps on so many SMs each.
  std::vector<NormWay> ways(int t, const std::vector<int>& sms) {
    std::vector<NormWay> ways;
    const int figure = options_.figure;
    const std::int64_t own = (t + fabric_.size() - 1) / fabric_.size();
    if (figure == 4 && fabric_.size() == 1) {
      ways.push_back({"norm", t, 0, [this, t] { norm(t); }});
    } else if (figure == 4) {
      for (const auto& [by, place] : nccl_places())
        ways.push_back({by + " all-reduce, norm", t, 0, [this, t, place] {
                          by_nccl([&] { all_reduce(t, place); });
                          norm(t, place);
                        }});
      ways.push_back({"Heddle's all-reduce, norm", t, 0, [this, t] {
                        all_reduce(t);
                        norm(t);
                      }});
      ways.push_back({"reduce-scatter, norm, all-gather", t, 0, [this, t, own] {
                        reduce_scatter(t);
                        norm(own);
                        all_gather(t, y_, x_);
                      }});
    }
    if (figure == 4) {
      ways.push_back({"fused", t, 0, [this, t] { fused(t); }});
      for (const AllReduceNormRegime regime : options_.regimes)
        if (can_force(regime, t))
          ways.push_back({fmt::format("fused, {}", name_of(regime)), t, 0, [this, t, regime] {
                            fused_.force(regime);
                            fused(t);
                            fused_.force(std::nullopt);
                          }});
    }
    if (figure == 5) {
      for (const auto& [by, place] : nccl_places()) {
        ways.push_back({by + " all-reduce", t, 0, [this, t, place] { by_nccl([&] { all_reduce(t, place); }); }});
        ways.push_back({by + " reduce-scatter, all-gather", t, 0, [this, t, place] {
                          by_nccl([&] {
                            reduce_scatter(t, place);
                            all_gather(t, place.sum, place.x);
                          });
                        }});
      }
      ways.push_back({"Heddle's all-reduce", t, 0, [this, t] { all_reduce(t); }});
      ways.push_back({"reduce-scatter, all-gather", t, 0, [this, t] {
                        reduce_scatter(t);
                        all_gather(t, sum_, x_);
                      }});
    }
    if (figure == 6) ways.push_back({"reduce-scatter", t, 0, [this, t] { reduce_scatter(t); }});
    for (const int n : sms) {
      if (figure == 7)
        ways.push_back({fmt::format("all-reduce, {} tokens", t), t, n, [this, t, n] { all_reduce_on(t, n); }});
      if (figure == 10) ways.push_back({fmt::format("fused, {} tokens", t), t, n, [this, t, n] { fused(t, n); }});
    }
    return ways;
  }

  // Of each of these ways, all of one size; interleaved.
  std::vector<std::vector<double>> samples(const std::vector<NormWay>& ways) {
    const bool small = count(ways.front().tokens) * size_of(dtype()) < (std::size_t{1} << 20);
    const int calls = small ? 20 : 4;
    std::vector<std::function<void()>> each;
    for (const NormWay& way : ways) {
      each.push_back(way.call);
      for (int i = 0; i < 2; ++i) way.call();
    }
    fabric_.synchronize(stream_);
    std::vector<std::vector<double>> seconds(ways.size());
    if constexpr (kHaveCuda)
      if (options_.on_gpus()) {
        fabric_.meet();
        std::vector<GraphSamples> graphs = interleaved_graph_samples(communicator_, stream_, calls, repeats(), each);
        for (std::size_t i = 0; i < ways.size(); ++i) seconds[i] = std::move(graphs[i].seconds);
        return seconds;
      }
    for (int sample = 0; sample < repeats(); ++sample)
      for (std::size_t turn = 0; turn < ways.size(); ++turn) {
        const std::size_t i = interleaved(sample, turn, ways.size());
        seconds[i].push_back(seconds_per_call(communicator_, stream_, calls, [&](int) { each[i](); }));
      }
    return seconds;
  }

 private:
  Place ordinary() const { return {x_, sum_}; }
  // Who sums, and where: NCCL on ordinary memory, and on registered windows, for which it has kernels of its own.
  std::vector<std::pair<std::string, Place>> nccl_places() const {
    if (!fabric_.has(Capability::vendor_collectives)) return {};
    std::vector<std::pair<std::string, Place>> places{{"NCCL's", ordinary()}};
    if (windows_) places.emplace_back("NCCL's windowed", *windows_);
    return places;
  }

  DType dtype() const { return options_.measured_dtype(); }
  int repeats() const { return options_.repeats.value_or(20); }
  Lane lane() const {
    const DeviceShare share = fabric_.device_share();
    if (share.ranks > 1 && share.sms > 0) return {stream_, share.sms};
    return {stream_};
  }
  std::size_t count(std::int64_t tokens) const {
    return static_cast<std::size_t>(tokens) * static_cast<std::size_t>(options_.hidden);
  }
  std::size_t part(std::int64_t tokens) const { return count((tokens + fabric_.size() - 1) / fabric_.size()); }
  Tensor rows(std::byte* data, std::int64_t tokens, DType of) const {
    return {data, tokens, options_.hidden, options_.hidden, of};
  }

  const TokenWeaveOptions& options_;
  Fabric& fabric_;
  Stream& stream_;
  Communicator communicator_;
  AllReduceNorm fused_;
  std::size_t elements_;
  Buffer memory_;
  std::optional<Place> windows_;
  std::byte *x_ = nullptr, *sum_ = nullptr, *y_ = nullptr, *residual_ = nullptr, *weight_ = nullptr;
};

std::vector<int> figure_tokens(const TokenWeaveOptions& options) {
  if (!options.tokens.empty()) return options.tokens;
  const bool sweep = options.figure == 7 || options.figure == 10;
  if (options.on_gpus()) return sweep ? std::vector{64, 1024, 4096} : std::vector{1, 16, 64, 256, 1024, 4096, 16384};
  return sweep ? std::vector{64} : std::vector{1, 4, 16, 64, 256, 1024};
}

// A rank of the CPU has one thread for the operator, so a sweep has one point there.
std::vector<int> figure_sms(const TokenWeaveOptions& options) {
  if (options.figure != 7 && options.figure != 10) return {};
  if (!options.on_gpus()) return {1};
  return options.sms.empty() ? std::vector{2, 4, 8, 16, 32, 64, 132} : options.sms;
}

SvgChart empty_chart(int figure, int hidden, DType dtype, std::size_t ranks) {
  const std::string shape = fmt::format("{} wide, {}, {} rank{}", hidden, name_of(dtype), ranks, ranks == 1 ? "" : "s");
  if (figure == 6) return {"Reduce-scatter, " + shape, "tokens", "GB/s of a rank", {}};
  if (figure == 7 || figure == 10)
    return {(figure == 7 ? "All-reduce, " : "Fused all-reduce and RMSNorm, ") + shape, "SMs", "microseconds", {}};
  const char* const summed = ranks == 1 ? "RMSNorm, " : "All-reduce and RMSNorm, ";
  return {(figure == 4 ? summed : "All-reduce, ") + shape, "tokens", "microseconds", {}};
}

}  // namespace

TokenWeaveResult measure_norm_figure(const TokenWeaveOptions& options) {
  const std::vector<int> tokens = figure_tokens(options);
  const auto ranks = static_cast<int>(options.devices.size());
  // Rows of a part are rounded up.
  const int most_tokens = *std::ranges::max_element(tokens) + ranks;
  const std::size_t heap =
      Communicator::heap_bytes(ranks, options.devices.front(), NormRank::communicator_options(options)) +
      AllReduceNorm::heap_bytes(ranks, options.devices.front(), NormRank::norm_options(options, most_tokens)) +
      (std::size_t{1} << 20);
  const DType dtype = options.measured_dtype();
  TokenWeaveResult result;
  SvgChart chart = empty_chart(options.figure, options.hidden, dtype, options.devices.size());
  result.cells.push_back({"way", "tokens", "SMs", "us", "p10", "p90", "GB/s"});
  const auto add_row = [&](const NormWay& way, const std::vector<double>& seconds) {
    const double time = median(seconds);
    // Of a reduce-scatter; an all-reduce and the fused operator send twice as much.
    const double sent = static_cast<double>(way.tokens) * options.hidden * static_cast<double>(size_of(dtype)) *
                        (ranks - 1) / ranks * (options.figure == 6 ? 1 : 2);
    const double rate = sent / time / 1e9;
    result.rows.push_back({{"way", way.name},
                           {"tokens", way.tokens},
                           {"hidden", options.hidden},
                           {"dtype", name_of(dtype)},
                           {"sms", way.sms},
                           {"microseconds", time * 1e6},
                           {"p10_microseconds", quantile(seconds, 0.1) * 1e6},
                           {"p90_microseconds", quantile(seconds, 0.9) * 1e6},
                           {"sent_gb_per_second", rate}});
    result.cells.push_back({way.name, std::to_string(way.tokens), way.sms == 0 ? "-" : std::to_string(way.sms),
                            fmt::format("{:.1f}", time * 1e6), fmt::format("{:.1f}", quantile(seconds, 0.1) * 1e6),
                            fmt::format("{:.1f}", quantile(seconds, 0.9) * 1e6), fmt::format("{:.1f}", rate)});
    auto series = std::ranges::find(chart.series, way.name, &ChartSeries::name);
    if (series == chart.series.end()) series = chart.series.insert(series, {way.name, {}});
    series->points.push_back(
        {static_cast<double>(way.sms > 0 ? way.sms : way.tokens), options.figure == 6 ? rate : time * 1e6});
  };
  run_weave_ranks(options, heap, [&](Fabric& fabric, Stream& stream) {
    NormRank rank(options, fabric, stream, most_tokens);
    for (const int of_call : tokens) {
      const std::vector<NormWay> ways = rank.ways(of_call, figure_sms(options));
      const std::vector<std::vector<double>> samples = rank.samples(ways);
      for (std::size_t i = 0; fabric.rank() == 0 && i < ways.size(); ++i) add_row(ways[i], samples[i]);
    }
    fabric.meet();  // memory is freed when no kernel waits any more
  });
  result.svg = svg_of(chart);
  return result;
}

}  // namespace heddle

// bench flash-decode: attention of one token per sequence whose keys are divided over ranks, by the four stages of
// "Eliminating Multi-GPU Performance Taxes", section 4.2.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "cli/bench/fused.h"
#include "cli/bench/operands.h"
#include "cli/number_option.h"
#include "collectives/all_gather.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/shards.h"
#include "kernels/attention/attention.h"

namespace heddle {
namespace {

struct DecodeShape {
  int batch = 1;
  int context = 4096;  // of all ranks
  int heads = 32, kv_heads = 8, head_dim = 128;
  int value_dim = 0;  // of latent attention, whose values are the first part of its keys; 0: values of their own
  DType dtype = DType::float32;

  int columns_of_values() const { return value_dim > 0 ? value_dim : head_dim; }
};

constexpr std::uint32_t kQueries = 1, kKeys = 2, kValues = 3;  // matrices, for hashed_element
constexpr int kKeysOfPage = 32;
// The numbers of a cache repeat after so many pages, an odd number of them. So a cache of gigabytes is made in a second,
// and the host's exact sums, of so many different keys, end. Each page still has a place of its own in memory.
constexpr int kPagesOfPattern = 129;
constexpr int kMostHeadsChecked = 64;
constexpr int kLargestHeads = 4096, kLargestHeadDim = 1024, kLargestBatch = 256, kLargestContext = 1 << 24;

FlashDecodeLimits decode_limits(const DecodeShape& shape) {
  return {.max_sequences = shape.batch,
          .num_heads = shape.heads,
          .num_kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim};
}

int heads_checked(const DecodeShape& shape) {
  return std::min(kMostHeadsChecked, shape.batch * shape.heads);
}

class DecodeCase final : public FusedCase {
 public:
  DecodeCase(const DecodeShape& shape, const FusedRank& rank)
      : shape_(shape),
        rank_(rank),
        tokens_(Shards::even(shape.context, rank.fabric.size())),
        fused_(rank.fabric, whole_team(rank.fabric), decode_limits(shape)) {
    const std::vector<std::int32_t> counts(static_cast<std::size_t>(shape.batch),
                                           static_cast<std::int32_t>(tokens_of(rank.fabric.rank())));
    std::vector<std::int32_t> table(static_cast<std::size_t>(shape.batch * pages()));
    std::iota(table.begin(), table.end(), 0);
    std::vector<std::int32_t> rows(counts.size() + 1);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> q(columns() * static_cast<std::size_t>(shape.batch));
    for (int s = 0; s < shape.batch; ++s)
      for (std::size_t i = 0; i < columns(); ++i)
        q[static_cast<std::size_t>(s) * columns() + i] =
            hashed_element(kQueries, DType::float32, s, static_cast<std::int64_t>(i));
    counts_ = uploaded(rank, counts.data(), counts.size() * sizeof(std::int32_t));
    table_ = uploaded(rank, table.data(), table.size() * sizeof(std::int32_t));
    rows_ = uploaded(rank, rows.data(), rows.size() * sizeof(std::int32_t));
    q_ = uploaded(rank, q.data(), q.size() * sizeof(float));
    y_ = Buffer(q.size() * sizeof(float), rank.device());
    keys_ = cache_of(kKeys);
    if (shape.value_dim == 0) values_ = cache_of(kValues);
    plan();
    const std::size_t floats = decode_part_floats(params());
    own_parts_ = Buffer(floats * sizeof(float), rank.device());
    all_parts_ = Buffer(floats * sizeof(float) * static_cast<std::size_t>(rank.fabric.size()), rank.device());
    result_ = params().y;
    // The parts of this rank and of all ranks are written and read.
    variants_.push_back({"bsp", [this] { call_stages(); },
                         2 * static_cast<std::int64_t>(own_parts_.size_bytes() + all_parts_.size_bytes())});
    for (const DecodeVariant variant : {DecodeVariant::all_gather, DecodeVariant::waits, DecodeVariant::push})
      variants_.push_back(
          {std::string(name_of(variant)), [this, variant] { fused_(params(), variant, rank_.lane, rank_.transfers); }});
  }

  // Relative to the larger of the exact element and the root mean square of an average of as many values as differ.
  double max_relative_error() const override {
    const double least = 1 / std::sqrt(3.0 * std::min(shape_.context, kPagesOfPattern * kKeysOfPage));
    const int all = shape_.batch * shape_.heads, looks = heads_checked(shape_);
    const std::vector<float> result = result_on_host(rank_);
    double most = 0;
    for (int look = 0; look < looks; ++look) {
      const int i = static_cast<int>(std::int64_t{look} * all / looks);
      if (look == std::ssize(exact_)) exact_.push_back(exact_head(i / shape_.heads, i % shape_.heads));
      const std::vector<double>& want = exact_[static_cast<std::size_t>(look)];
      const float* const got = result.data() + static_cast<std::ptrdiff_t>(i) * shape_.head_dim;
      for (std::size_t d = 0; d < want.size(); ++d) {
        if (std::isnan(got[d])) return static_cast<double>(got[d]);
        most = std::max(most, std::abs(static_cast<double>(got[d]) - want[d]) / std::max(std::abs(want[d]), least));
      }
    }
    return most;
  }

 private:
  std::size_t columns() const {
    return static_cast<std::size_t>(shape_.heads) * static_cast<std::size_t>(shape_.head_dim);
  }
  std::int64_t tokens_of(int rank) const { return tokens_.count(rank); }
  int pages_of(int rank) const {
    return static_cast<int>(std::max<std::int64_t>(1, (tokens_of(rank) + kKeysOfPage - 1) / kKeysOfPage));
  }
  int pages() const { return pages_of(rank_.fabric.rank()); }
  std::size_t page_bytes() const {
    return kKeysOfPage * static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(shape_.head_dim) *
           size_of(shape_.dtype);
  }
  PagedKv kv() const {
    return {const_cast<std::byte*>(keys_.data()),
            const_cast<std::byte*>(shape_.value_dim > 0 ? keys_.data() : values_.data()),
            shape_.kv_heads,
            kKeysOfPage,
            shape_.head_dim,
            shape_.dtype};
  }
  FlashDecodeParams params() {
    const auto width = static_cast<std::int64_t>(columns());
    return {.q = {q_.data(), shape_.batch, width, width},
            .y = {y_.data(), shape_.batch, width, width},
            .kv = kv(),
            .sequences = {.query_start = reinterpret_cast<const std::int32_t*>(rows_.data()),
                          .context_len = reinterpret_cast<const std::int32_t*>(counts_.data()),
                          .page_table = reinterpret_cast<const std::int32_t*>(table_.data()),
                          .num_sequences = shape_.batch,
                          .page_table_stride = pages(),
                          .max_query_len = 1},
            .num_heads = shape_.heads,
            .scale = scale(),
            .value_dim = shape_.value_dim,
            .older_keys = OlderKeys::in_place,
            .scratch = scratch_.data(),
            .plan = plan_.data()};
  }
  // Once for all calls, as an engine plans a step once for all layers.
  void plan() {
    if (!rank_.on_gpu()) return;
    scratch_ =
        Buffer(attention_scratch_bytes(shape_.batch, shape_.batch, shape_.heads, shape_.head_dim), rank_.device());
    plan_ = Buffer(shape_.value_dim > 0 ? latent_plan_bytes(shape_.batch, shape_.batch, shape_.heads)
                                        : attention_plan_bytes(shape_.batch, shape_.kv_heads),
                   rank_.device());
    enqueue_clear(rank_.stream, scratch_.data(), scratch_.size_bytes());
    const FlashDecodeParams of = params();
    plan_attention({.kv = of.kv,
                    .sequences = of.sequences,
                    .num_tokens = shape_.batch,
                    .num_heads = of.num_heads,
                    .value_dim = of.value_dim,
                    .plan = plan_.data(),
                    .plan_bytes = plan_.size_bytes()},
                   rank_.lane);
    rank_.stream.synchronize();
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_dim)); }

  // Which numbers a slot of page `page` of a rank's cache has. Ranks begin at different pages of the pattern.
  static std::int64_t numbered(int rank, std::int64_t page, int slot) {
    constexpr int kPagesBetweenRanks = 37;
    return (rank * kPagesBetweenRanks + page) % kPagesOfPattern * kKeysOfPage + slot;
  }

  // The keys (1) or values (2) of this rank, on its device: the pattern once from the host, then copies of what is there.
  Buffer cache_of(std::uint32_t matrix) const {
    const std::size_t all = static_cast<std::size_t>(shape_.batch) * static_cast<std::size_t>(pages()) * page_bytes();
    Buffer pattern(std::min(all, kPagesOfPattern * page_bytes()));
    for (std::int64_t page = 0; page < static_cast<std::int64_t>(pattern.size_bytes() / page_bytes()); ++page)
      for (int slot = 0; slot < kKeysOfPage; ++slot)
        for (int head = 0; head < shape_.kv_heads; ++head) {
          const std::size_t first = kv().offset(static_cast<std::int32_t>(page), head, slot);
          const std::int64_t number = numbered(rank_.fabric.rank(), page, slot);
          for (int d = 0; d < shape_.head_dim; ++d)
            store(pattern, first + static_cast<std::size_t>(d),
                  hashed_element(matrix, shape_.dtype, number, head * shape_.head_dim + d));
        }
    Buffer cache(all, rank_.device());
    enqueue_copy(rank_.stream, cache.data(), pattern.data(), pattern.size_bytes());
    for (std::size_t filled = pattern.size_bytes(); filled < all; filled *= 2)
      enqueue_copy(rank_.stream, cache.data() + filled, cache.data(), std::min(filled, all - filled));
    rank_.stream.synchronize();
    return cache;
  }
  void store(Buffer& buffer, std::size_t at, float value) const {
    if (shape_.dtype == DType::float32)
      reinterpret_cast<float*>(buffer.data())[at] = value;
    else if (shape_.dtype == DType::bfloat16)
      reinterpret_cast<bfloat16*>(buffer.data())[at] = to_bfloat16(value);
    else
      reinterpret_cast<float16*>(buffer.data())[at] = to_float16(value);
  }

  // How many of a sequence's keys, of all ranks, have each of the pattern's numbers.
  std::vector<std::int64_t> keys_of_numbers(int sequence) const {
    std::vector<std::int64_t> keys(static_cast<std::size_t>(kPagesOfPattern) * kKeysOfPage);
    for (int rank = 0; rank < rank_.fabric.size(); ++rank)
      for (std::int64_t token = 0; token < tokens_of(rank); ++token) {
        const std::int64_t page = std::int64_t{sequence} * pages_of(rank) + token / kKeysOfPage;
        ++keys[static_cast<std::size_t>(numbered(rank, page, static_cast<int>(token % kKeysOfPage)))];
      }
    return keys;
  }

  std::vector<double> exact_head(int sequence, int head) const {
    const int kv_head = head / (shape_.heads / shape_.kv_heads);
    const auto element = [&](std::uint32_t matrix, std::size_t number, int d) {
      return static_cast<double>(
          hashed_element(matrix, shape_.dtype, static_cast<std::int64_t>(number), kv_head * shape_.head_dim + d));
    };
    const std::vector<std::int64_t> keys = keys_of_numbers(sequence);
    std::vector<double> q(static_cast<std::size_t>(shape_.head_dim)), scores(keys.size()),
        y(static_cast<std::size_t>(shape_.columns_of_values()));
    for (std::size_t d = 0; d < q.size(); ++d)
      q[d] = static_cast<double>(
          hashed_element(kQueries, DType::float32, sequence, head * shape_.head_dim + static_cast<int>(d)));
    double most = -INFINITY;
    for (std::size_t number = 0; number < keys.size(); ++number) {
      if (keys[number] == 0) continue;
      for (std::size_t d = 0; d < q.size(); ++d)
        scores[number] += q[d] * element(kKeys, number, static_cast<int>(d)) * static_cast<double>(scale());
      most = std::max(most, scores[number]);
    }
    const std::uint32_t values = shape_.value_dim > 0 ? kKeys : kValues;
    double sum = 0;
    for (std::size_t number = 0; number < keys.size(); ++number) {
      if (keys[number] == 0) continue;
      const double weight = static_cast<double>(keys[number]) * std::exp(scores[number] - most);
      sum += weight;
      for (std::size_t d = 0; d < y.size(); ++d) y[d] += weight * element(values, number, static_cast<int>(d));
    }
    for (double& each : y) each /= sum;
    return y;
  }

  // Stage one of the paper: compute, a collective, compute.
  void call_stages() {
    auto* const own = reinterpret_cast<float*>(own_parts_.data());
    auto* const all = reinterpret_cast<float*>(all_parts_.data());
    partial_decode(params(), own, rank_.lane);
    all_gather(rank_.communicator, {own, all, decode_part_floats(params()), DType::float32}, rank_.stream);
    combine_decode(params(), all, rank_.fabric.size(), rank_.lane);
  }

  DecodeShape shape_;
  FusedRank rank_;
  Shards tokens_;
  Buffer q_, y_, keys_, values_, counts_, table_, rows_, scratch_, plan_, own_parts_, all_parts_;
  FlashDecode fused_;
  mutable std::vector<std::vector<double>> exact_;  // of the heads that are looked at, computed once
};

struct DecodeBenchOptions : FusedBenchOptions {
  std::vector<int> batches{1}, contexts{4096};
  DecodeShape shape;
};

void run_flash_decode_bench(const DecodeBenchOptions& options) {
  const std::vector<Device> devices = require_devices(options);
  if (options.shape.heads % options.shape.kv_heads != 0)
    throw_error<InputError>("--heads {}: is no multiple of --kv-heads {}, and each KV head serves as many heads",
                            options.shape.heads, options.shape.kv_heads);
  if (options.shape.value_dim > options.shape.head_dim)
    throw_error<InputError>("--value-dim {}: more than --head-dim {}, and the values are the first part of the keys",
                            options.shape.value_dim, options.shape.head_dim);
  std::vector<FusedCaseMaker> cases;
  for (const int batch : options.batches)
    for (const int context : options.contexts) {
      DecodeShape shape = options.shape;
      shape.batch = batch;
      shape.context = context;
      cases.push_back({.shape = {{"batch", batch},
                                 {"context", context},
                                 {"heads", shape.heads},
                                 {"kv_heads", shape.kv_heads},
                                 {"head_dim", shape.head_dim},
                                 {"heads_checked", heads_checked(shape)},
                                 {"dtype", name_of(shape.dtype)}},
                       .heap_bytes = FlashDecode::heap_bytes(options.num_ranks(), decode_limits(shape)),
                       .make = [shape](const FusedRank& rank) { return std::make_unique<DecodeCase>(shape, rank); }});
      if (shape.value_dim > 0) cases.back().shape["value_dim"] = shape.value_dim;
    }
  run_fused_bench("flash-decode", options, devices, cases);
}

}  // namespace

void add_flash_decode_benchmark(CLI::App& bench) {
  const auto options = std::make_shared<DecodeBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "flash-decode", "Decode attention with the keys divided over ranks: bulk-synchronous, and three fused stages");
  add_fused_options(*command, *options);
  const auto add_list = [&](const std::string& name, std::vector<int>& target, int most,
                            const std::string& description) {
    command
        ->add_option_function<std::vector<int>>(
            name, [&target](const std::vector<int>& values) { target = values; }, description)
        ->delimiter(',')
        ->check(CLI::Range(1, most));
  };
  add_list("--batch", options->batches, kLargestBatch, "Sequences, comma-separated; default 1");
  add_list("--context", options->contexts, kLargestContext,
           "Keys of a sequence, of all ranks, comma-separated; default 4096");
  add_number_option<int>(*command, "--heads", options->shape.heads, "Query heads; default 32",
                         {.min = 1, .max = kLargestHeads});
  add_number_option<int>(*command, "--kv-heads", options->shape.kv_heads, "Heads of keys and values; default 8",
                         {.min = 1, .max = kLargestHeads});
  add_number_option<int>(*command, "--head-dim", options->shape.head_dim, "Elements of a head; default 128",
                         {.min = 1, .max = kLargestHeadDim});
  add_number_option<int>(*command, "--value-dim", options->shape.value_dim,
                         "Of latent attention (MLA), whose values are so many first elements of its keys: 512 with "
                         "--head-dim 576 and --kv-heads 1; default: values of their own",
                         {.min = 1, .max = kLargestHeadDim});
  command
      ->add_option_function<std::string>(
          "--dtype", [options](const std::string& text) { options->shape.dtype = *dtype_named(text); },
          "Of keys and values; default float32")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command->callback([options] { run_flash_decode_bench(*options); });
}

}  // namespace heddle

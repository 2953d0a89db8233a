#include "cli/bench/operator_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/copy.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_append.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_swiglu.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"
#include "kernels/rows/swiglu.h"
#include "kernels/sampling/random.h"
#include "models/llama.h"
#include "models/rope_config.h"

namespace heddle {
namespace {

constexpr std::int64_t kCheckedTokens = 16;
constexpr std::int64_t kCheckedFeatures = 97;
constexpr float kEps = 1e-5f;

double bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return static_cast<double>(rows * columns) * static_cast<double>(size_of(dtype));
}

// Runs an operator on the CPU.
template <class Call>
void on_cpu(Call&& call) {
  ThreadPool pool(1);
  Stream stream(pool);
  call(stream);
  stream.synchronize();
}

// The values at these places.
template <class To, class From>
std::vector<To> values_at(const std::vector<From>& values, const std::vector<std::int64_t>& places) {
  std::vector<To> taken;
  taken.reserve(places.size());
  for (const std::int64_t place : places) taken.push_back(values[static_cast<std::size_t>(place)]);
  return taken;
}

// Roundings to the coarsest of these dtypes, each of the operand and of the result, with some room.
double roundings(std::initializer_list<DType> dtypes, double count = 4) {
  double unit = 1e-6;
  for (const DType dtype : dtypes) unit = std::max(unit, unit_roundoff(dtype));
  return count * unit;
}

LlamaDTypes dtypes_of(const OperatorStep& step) {
  return llama_dtypes(step.dtype, step.device, Compute::automatic);
}
DType input_dtype(const OperatorStep& step) {
  return dtypes_of(step).activations;
}
DType passed_dtype(const OperatorStep& step) {
  return dtypes_of(step).intermediates;
}
DType delta_dtype(const OperatorStep& step) {
  return dtypes_of(step).deltas;
}

struct LinearShape {
  LinearRole role;
  std::int64_t out_features, in_features;
  std::int64_t rows;
  int calls_per_step;
  DType output;
  bool has_bias = false;
};

// A number that every dtype holds, as a checkpoint's dtype holds its biases.
float bias_of(std::int64_t feature) {
  return static_cast<float>(feature * 7 % 17 - 8) / 64;
}

void add_bias(Operands& operands, Weight& weight) {
  std::vector<float> bias(static_cast<std::size_t>(weight.out_features));
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = bias_of(static_cast<std::int64_t>(i));
  weight.bias = operands.array(bias);
  weight.bias_dtype = weight.dtype;
}

// Of these features, for a product on the CPU.
std::vector<float> biases_of(std::span<const std::int64_t> features) {
  std::vector<float> bias;
  for (const std::int64_t feature : features) bias.push_back(bias_of(feature));
  return bias;
}

// These columns of all rows.
std::vector<float> values_of(const HostRows& rows, std::span<const std::int64_t> columns) {
  const std::vector<float> all = rows.floats();
  const std::size_t width = all.size() / static_cast<std::size_t>(rows.rows());
  std::vector<float> values;
  for (std::size_t first = 0; first < all.size(); first += width)
    for (const std::int64_t column : columns) values.push_back(all[first + static_cast<std::size_t>(column)]);
  return values;
}

OperatorCase linear_case(const OperatorStep& step, const LinearShape& shape) {
  const DType input = input_dtype(step);
  const double weight_bytes = bytes_of(shape.out_features, shape.in_features, step.dtype);
  OperatorCase result{.name = fmt::format("linear {}", name_of(shape.role)),
                      .shape = fmt::format("{} x {} x {}{}", shape.rows, shape.out_features, shape.in_features,
                                           shape.has_bias ? ", bias" : ""),
                      .calls_per_step = shape.calls_per_step,
                      .bytes = weight_bytes + bytes_of(shape.rows, shape.in_features, input) +
                               bytes_of(shape.rows, shape.out_features, shape.output),
                      .flops = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.out_features) *
                               static_cast<double>(shape.in_features),
                      .of_peer = {{"rows", shape.rows},
                                  {"out_features", shape.out_features},
                                  {"in_features", shape.in_features},
                                  {"role", std::string(name_of(shape.role))}},
                      .set_bytes = static_cast<std::size_t>(weight_bytes)};
  result.prepare = [shape, input, dtype = step.dtype](Operands& operands, int sets) {
    auto all = std::make_shared<std::vector<LinearParams>>();
    LinearParams next{.x = operands.tensor(shape.rows, shape.in_features, input),
                      .y = operands.tensor(shape.rows, shape.out_features, shape.output),
                      .role = shape.role};
    const Lane lane = operands.lane(linear_workspace_bytes(operands.stream().device()));
    for (int set = 0; set < sets; ++set) {
      next.weight = operands.weight(shape.out_features, shape.in_features, dtype);
      if (shape.has_bias) add_bias(operands, next.weight);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, lane](int set) { linear((*all)[static_cast<std::size_t>(set)], lane); };
    prepared.check = [all, &operands, lane] {
      const LinearParams& params = all->front();
      linear(params, lane);
      const auto tokens = sampled(params.x.rows, kCheckedTokens);
      const auto features = sampled(params.weight.out_features, kCheckedFeatures);
      HostRows x_rows = HostRows(operands.stream(), params.x, tokens).widened();
      HostRows weight_rows(operands.stream(), params.weight, features);
      HostRows wanted(static_cast<std::int64_t>(tokens.size()), static_cast<std::int64_t>(features.size()),
                      DType::float32);
      Weight weight = weight_rows.weight();
      const std::vector<float> bias = biases_of(features);
      if (params.weight.bias != nullptr) weight.bias = bias.data();
      on_cpu([&](Stream& cpu) { linear({.x = x_rows.tensor(), .weight = weight, .y = wanted.tensor()}, cpu); });
      return relative_error(values_of(HostRows(operands.stream(), params.y, tokens), features), wanted.floats());
    };
    prepared.most_error = roundings({shape.output}, 2) + 1e-4;  // sums of tensor cores are a little less than float32's
    return prepared;
  };
  return result;
}

// The pages of a step: each sequence's own, in random order; on the device, and the tables on the host.
struct StepPages {
  std::vector<std::int32_t> query_start, context_len, table;
  int pages_per_sequence = 0;
  int num_pages = 0;
};

StepPages pages_of(const OperatorStep& step) {
  StepPages pages;
  const int length = step.context + step.tokens;
  pages.pages_per_sequence = (length + step.page_size - 1) / step.page_size;
  pages.num_pages = pages.pages_per_sequence * step.batch;
  pages.table.resize(static_cast<std::size_t>(pages.num_pages));
  std::iota(pages.table.begin(), pages.table.end(), 0);
  for (std::size_t i = pages.table.size(); i > 1; --i) {
    const auto other = static_cast<std::size_t>(uniform(5, static_cast<std::uint32_t>(i), 0) * static_cast<double>(i));
    std::swap(pages.table[i - 1], pages.table[other]);
  }
  for (int sequence = 0; sequence <= step.batch; ++sequence) pages.query_start.push_back(sequence * step.tokens);
  pages.context_len.assign(static_cast<std::size_t>(step.batch), length);
  return pages;
}

PagedSequences on_device(Operands& operands, const OperatorStep& step, const StepPages& pages) {
  return {.query_start = operands.array(pages.query_start),
          .context_len = operands.array(pages.context_len),
          .page_table = operands.array(pages.table),
          .num_sequences = step.batch,
          .page_table_stride = pages.pages_per_sequence,
          .max_query_len = step.tokens};
}

std::size_t half_elements(const OperatorStep& step, int num_pages) {
  return static_cast<std::size_t>(num_pages) * static_cast<std::size_t>(step.page_size) *
         static_cast<std::size_t>(step.config.num_kv_heads) * static_cast<std::size_t>(step.config.head_dim);
}

PagedKv random_pages(Operands& operands, const OperatorStep& step, int num_pages) {
  const std::size_t count = half_elements(step, num_pages);
  return {.keys = operands.random(count, step.dtype, 1),
          .values = operands.random(count, step.dtype, 1),
          .num_kv_heads = step.config.num_kv_heads,
          .page_size = step.page_size,
          .head_dim = step.config.head_dim,
          .dtype = step.dtype};
}

// The pages of one sequence on the host, in its own order.
struct HostPages {
  std::vector<std::byte> keys, values;
  PagedKv view;
};

HostPages download_pages(Stream& stream, const PagedKv& kv, std::span<const std::int32_t> table) {
  const std::size_t page_bytes = kv.offset(1, 0, 0) * size_of(kv.dtype);
  HostPages host{.keys = std::vector<std::byte>(table.size() * page_bytes),
                 .values = std::vector<std::byte>(table.size() * page_bytes),
                 .view = kv};
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::size_t from = static_cast<std::size_t>(table[i]) * page_bytes;
    enqueue_copy(stream, host.keys.data() + i * page_bytes, static_cast<const std::byte*>(kv.keys) + from, page_bytes);
    enqueue_copy(stream, host.values.data() + i * page_bytes, static_cast<const std::byte*>(kv.values) + from,
                 page_bytes);
  }
  stream.synchronize();
  host.view.keys = host.keys.data();
  host.view.values = host.values.data();
  return host;
}

// The keys that a step's tokens see, of one sequence.
double seen_keys(const OperatorStep& step) {
  double keys = 0;
  const int window = step.config.windows.front();
  for (int i = 1; i <= step.tokens; ++i) keys += window > 0 ? std::min(window, step.context + i) : step.context + i;
  return keys;
}

// Some tokens of the first sequence, each as a sequence of its own that ends with it.
std::vector<float> attention_on_cpu(Stream& stream, const AttentionParams& params, const StepPages& pages,
                                    std::span<const std::int64_t> tokens, int context) {
  const std::span table(pages.table.data(), static_cast<std::size_t>(pages.pages_per_sequence));
  const HostPages kv = download_pages(stream, params.kv, table);
  std::vector<std::int32_t> query_start{0}, context_len, table_of_all;
  for (const std::int64_t token : tokens) {
    query_start.push_back(query_start.back() + 1);
    context_len.push_back(context + static_cast<std::int32_t>(token) + 1);
    for (int page = 0; page < pages.pages_per_sequence; ++page) table_of_all.push_back(page);
  }
  HostRows q = HostRows(stream, params.q, tokens).widened();
  HostRows y(static_cast<std::int64_t>(tokens.size()), params.y.columns, DType::float32);
  on_cpu([&](Stream& cpu) {
    attention({.q = q.tensor(),
               .y = y.tensor(),
               .kv = kv.view,
               .sequences = {.query_start = query_start.data(),
                             .context_len = context_len.data(),
                             .page_table = table_of_all.data(),
                             .num_sequences = static_cast<int>(tokens.size()),
                             .page_table_stride = pages.pages_per_sequence,
                             .max_query_len = 1},
               .num_heads = params.num_heads,
               .scale = params.scale,
               .window = params.window},
              cpu);
  });
  return y.floats();
}

OperatorCase attention_case(const OperatorStep& step) {
  const LlamaConfig& config = step.config;
  const std::int64_t heads = std::int64_t{config.num_heads} * config.head_dim;
  const int length = step.context + step.tokens;
  const int window = config.windows.front();
  const int first = window > 0 ? std::max(0, step.context + 1 - window) : 0;
  const double kv_bytes = 2.0 * step.batch * (length - first) * config.num_kv_heads * config.head_dim *
                          static_cast<double>(size_of(step.dtype));
  const DType passed = passed_dtype(step);
  OperatorCase result{
      .name = "attention",
      .shape = fmt::format("{} x {}, {} keys, {}/{} heads of {}", step.batch, step.tokens, length, config.num_heads,
                           config.num_kv_heads, config.head_dim),
      .calls_per_step = config.num_layers,
      .bytes = kv_bytes + bytes_of(step.rows(), heads, passed) + bytes_of(step.rows(), heads, input_dtype(step)),
      .flops = 4.0 * step.batch * seen_keys(step) * static_cast<double>(heads),
      .set_bytes = static_cast<std::size_t>(kv_bytes)};
  result.prepare = [step, heads, passed, window](Operands& operands, int sets) {
    const StepPages pages = pages_of(step);
    auto all = std::make_shared<std::vector<AttentionParams>>();
    AttentionParams params{.q = operands.tensor(step.rows(), heads, passed),
                           .y = operands.tensor(step.rows(), heads, input_dtype(step)),
                           .sequences = on_device(operands, step, pages),
                           .num_heads = step.config.num_heads,
                           .scale = 1 / std::sqrt(static_cast<float>(step.config.head_dim)),
                           .window = window,
                           .older_keys = OlderKeys::in_place};  // as in a step
    void* plan = nullptr;
    const std::size_t plan_bytes = attention_plan_bytes(step.batch, step.config.num_kv_heads);
    if (step.device.kind == DeviceKind::cuda) {
      params.scratch =
          operands.zeros(attention_scratch_bytes(step.rows(), step.batch, step.config.num_heads, step.config.head_dim));
      params.plan = plan = operands.zeros(plan_bytes);
    }
    for (int set = 0; set < sets; ++set) {
      params.kv = random_pages(operands, step, pages.num_pages);
      all->push_back(params);
    }
    // Once for all, as a step does for all of its layers: what it costs is part of a step, not of these figures.
    plan_attention({.kv = all->front().kv,
                    .sequences = params.sequences,
                    .num_tokens = step.rows(),
                    .num_heads = params.num_heads,
                    .window = window,
                    .plan = plan,
                    .plan_bytes = plan_bytes},
                   operands.stream());
    PreparedOperator prepared;
    prepared.call = [all, &operands](int set) { attention((*all)[static_cast<std::size_t>(set)], operands.stream()); };
    prepared.check = [all, &operands, pages, step] {
      const AttentionParams& first_set = all->front();
      attention(first_set, operands.stream());
      const auto tokens = sampled(step.tokens, 3);
      const auto wanted = attention_on_cpu(operands.stream(), first_set, pages, tokens, step.context);
      return relative_error(HostRows(operands.stream(), first_set.y, tokens).floats(), wanted);
    };
    prepared.most_error = roundings({passed, step.dtype}, 4);
    return prepared;
  };
  return result;
}

OperatorCase norm_case(const OperatorStep& step) {
  const int hidden = step.config.hidden;
  OperatorCase result{.name = "rmsnorm",
                      .shape = fmt::format("{} x {}, with a residual", step.rows(), hidden),
                      .calls_per_step = 2 * step.config.num_layers + 1,
                      .bytes = 2 * bytes_of(step.rows(), hidden, DType::float32) +
                               bytes_of(step.rows(), hidden, delta_dtype(step)) +
                               bytes_of(step.rows(), hidden, input_dtype(step)) + bytes_of(1, hidden, DType::float32)};
  result.prepare = [rows = step.rows(), hidden, delta = delta_dtype(step), output = input_dtype(step)](
                       Operands& operands, int) {
    const RmsNormParams params{.x = operands.tensor(rows, hidden, delta),
                               .weight = operands.random(static_cast<std::size_t>(hidden), DType::float32, 1),
                               .residual = operands.tensor(rows, hidden, DType::float32),
                               .y = operands.tensor(rows, hidden, output),
                               .eps = kEps};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { rmsnorm(params, operands.stream()); };
    prepared.check = [params, &operands] {
      const auto tokens = sampled(params.x.rows, kCheckedTokens);
      const std::int64_t only[] = {0};
      HostRows x = HostRows(operands.stream(), params.x, tokens).widened();
      HostRows residual(operands.stream(), params.residual, tokens);
      HostRows weight(operands.stream(),
                      Tensor{const_cast<void*>(params.weight), 1, params.x.columns, params.x.columns, DType::float32},
                      only);
      rmsnorm(params, operands.stream());
      HostRows y(static_cast<std::int64_t>(tokens.size()), params.x.columns, DType::float32);
      on_cpu([&](Stream& cpu) {
        rmsnorm({.x = x.tensor(),
                 .weight = weight.tensor().data,
                 .residual = residual.tensor(),
                 .y = y.tensor(),
                 .eps = kEps},
                cpu);
      });
      return std::max(relative_error(HostRows(operands.stream(), params.y, tokens).floats(), y.floats()),
                      relative_error(HostRows(operands.stream(), params.residual, tokens).floats(), residual.floats()));
    };
    prepared.most_error = roundings({output}, 2);
    return prepared;
  };
  return result;
}

// Queries, keys and values as attention finds them; the keys and values of a few tokens in the cache, head after head.
std::vector<float> appended(const void* pages, const PagedKv& kv, std::span<const std::int64_t> tokens, int context) {
  std::vector<float> values;
  std::vector<float> row(static_cast<std::size_t>(kv.head_dim));
  for (const std::int64_t token : tokens)
    for (int head = 0; head < kv.num_kv_heads; ++head) {
      const int position = context + static_cast<int>(token);
      const std::size_t offset = kv.offset(position / kv.page_size, head, position % kv.page_size);
      convert(static_cast<const std::byte*>(pages) + offset * size_of(kv.dtype), kv.dtype, row.data(), DType::float32,
              row.size());
      values.insert(values.end(), row.begin(), row.end());
    }
  return values;
}

OperatorCase rope_append_case(const OperatorStep& step) {
  const std::int64_t heads = std::int64_t{step.config.num_heads} * step.config.head_dim;
  const std::int64_t kv_heads = std::int64_t{step.config.num_kv_heads} * step.config.head_dim;
  const DType passed = passed_dtype(step);
  OperatorCase result{
      .name = "rope_append",
      .shape = fmt::format("{} x ({} + 2 x {})", step.rows(), heads, kv_heads),
      .calls_per_step = step.config.num_layers,
      .bytes = 2 * bytes_of(step.rows(), heads + kv_heads, passed) + 2 * bytes_of(step.rows(), kv_heads, step.dtype)};
  result.prepare = [step, heads, kv_heads, passed](Operands& operands, int) {
    const RopeFrequencies frequencies = rope_frequencies(step.config.rope, step.config.head_dim);
    const StepPages pages = pages_of(step);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(step.rows()));
    for (int row = 0; row < step.rows(); ++row)
      positions[static_cast<std::size_t>(row)] = step.context + row % step.tokens;
    const RopeAppendParams params{.q = operands.tensor(step.rows(), heads, passed),
                                  .k = operands.tensor(step.rows(), kv_heads, passed),
                                  .v = operands.tensor(step.rows(), kv_heads, passed),
                                  .positions = operands.array(positions),
                                  .inv_freq = operands.array(frequencies.inv_freq),
                                  .scale = frequencies.scale,
                                  .kv = random_pages(operands, step, pages.num_pages),
                                  .sequences = on_device(operands, step, pages),
                                  .older_keys = OlderKeys::in_place};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { rope_append(params, operands.stream()); };
    prepared.check = [params, &operands, positions, frequencies, pages, step] {
      const auto tokens = sampled(step.tokens, kCheckedTokens);  // of the first sequence
      HostRows q = HostRows(operands.stream(), params.q, tokens).widened();
      HostRows k = HostRows(operands.stream(), params.k, tokens).widened();
      const HostRows v = HostRows(operands.stream(), params.v, tokens).widened();
      rope_append(params, operands.stream());
      const std::vector<std::int32_t> positions_of_tokens = values_at<std::int32_t>(positions, tokens);
      on_cpu([&](Stream& cpu) {
        rope({.q = q.tensor(),
              .k = k.tensor(),
              .positions = positions_of_tokens.data(),
              .inv_freq = frequencies.inv_freq.data(),
              .head_dim = params.kv.head_dim,
              .scale = params.scale},
             cpu);
      });
      const std::span table(pages.table.data(), static_cast<std::size_t>(pages.pages_per_sequence));
      const HostPages kv = download_pages(operands.stream(), params.kv, table);
      return std::max({relative_error(HostRows(operands.stream(), params.q, tokens).floats(), q.floats()),
                       relative_error(appended(kv.view.keys, kv.view, tokens, step.context), k.floats()),
                       relative_error(appended(kv.view.values, kv.view, tokens, step.context), v.floats())});
    };
    prepared.most_error = roundings({passed, step.dtype}, 3) + 1e-6;
    return prepared;
  };
  return result;
}

OperatorCase swiglu_case(const OperatorStep& step) {
  const std::int64_t width = step.config.intermediate;
  const DType passed = passed_dtype(step);
  OperatorCase result{
      .name = "swiglu",
      .shape = fmt::format("{} x {}", step.rows(), width),
      .calls_per_step = step.config.num_layers,
      .bytes = bytes_of(step.rows(), 2 * width, passed) + bytes_of(step.rows(), width, input_dtype(step))};
  result.prepare = [rows = step.rows(), width, passed, output = input_dtype(step)](Operands& operands, int) {
    const SwigluParams params{.gate_up = operands.tensor(rows, 2 * width, passed),
                              .y = operands.tensor(rows, width, output)};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { swiglu(params, operands.stream()); };
    prepared.check = [params, &operands] {
      swiglu(params, operands.stream());
      const auto tokens = sampled(params.y.rows, kCheckedTokens);
      HostRows gate_up = HostRows(operands.stream(), params.gate_up, tokens).widened();
      HostRows y(static_cast<std::int64_t>(tokens.size()), params.y.columns, DType::float32);
      on_cpu([&](Stream& cpu) { swiglu({.gate_up = gate_up.tensor(), .y = y.tensor()}, cpu); });
      return relative_error(HostRows(operands.stream(), params.y, tokens).floats(), y.floats());
    };
    prepared.most_error = roundings({output}, 2) + 1e-6;
    return prepared;
  };
  return result;
}

// Whether gate, up and swiglu are one kernel, of operands like those made here.
bool gates_at_once(const OperatorStep& step) {
  const std::int64_t rows = step.rows(), width = step.config.intermediate, hidden = step.config.hidden;
  const auto tensor = [&](std::int64_t columns) {
    return Tensor{.rows = rows, .columns = columns, .row_stride = columns, .dtype = step.dtype};
  };
  Weight weight{.out_features = 2 * width, .in_features = hidden, .dtype = step.dtype};
  weight.blocks[0].num_rows = 2 * width;
  const float bias = 0;
  if (step.config.mlp_bias) weight.bias = &bias;
  return heddle::gates_at_once(
      {.gate_up = {.x = tensor(hidden), .weight = weight, .y = tensor(2 * width)}, .y = tensor(width)}, step.device);
}

OperatorCase linear_swiglu_case(const OperatorStep& step) {
  const std::int64_t rows = step.rows(), width = step.config.intermediate, hidden = step.config.hidden;
  const DType dtype = step.dtype;
  const double weight_bytes = bytes_of(2 * width, hidden, dtype);
  OperatorCase result{.name = "linear_swiglu",
                      .shape = fmt::format("{} x {} x {}", rows, 2 * width, hidden),
                      .calls_per_step = step.config.num_layers,
                      .bytes = weight_bytes + bytes_of(rows, hidden, dtype) + bytes_of(rows, width, dtype),
                      .flops = 4.0 * static_cast<double>(rows * width) * static_cast<double>(hidden),
                      .set_bytes = static_cast<std::size_t>(weight_bytes)};
  result.prepare = [rows, width, hidden, dtype, has_bias = step.config.mlp_bias](Operands& operands, int sets) {
    auto all = std::make_shared<std::vector<LinearSwigluParams>>();
    LinearSwigluParams next{.gate_up = {.x = operands.tensor(rows, hidden, dtype),
                                        .y = operands.tensor(rows, 2 * width, dtype),
                                        .role = LinearRole::gate_up},
                            .y = operands.tensor(rows, width, dtype)};
    const Lane lane = operands.lane(linear_workspace_bytes(operands.stream().device()));
    for (int set = 0; set < sets; ++set) {
      next.gate_up.weight = operands.weight(2 * width, hidden, dtype);
      if (has_bias) add_bias(operands, next.gate_up.weight);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, lane](int set) { linear_swiglu((*all)[static_cast<std::size_t>(set)], lane); };
    prepared.check = [all, &operands, lane] {
      const LinearSwigluParams& params = all->front();
      linear_swiglu(params, lane);
      const auto tokens = sampled(params.y.rows, kCheckedTokens);
      const auto features = sampled(params.y.columns, kCheckedFeatures);
      std::vector<std::int64_t> gate_and_up(features);
      for (const std::int64_t feature : features) gate_and_up.push_back(params.y.columns + feature);
      HostRows x = HostRows(operands.stream(), params.gate_up.x, tokens).widened();
      HostRows weight_rows(operands.stream(), params.gate_up.weight, gate_and_up);
      Weight weight = weight_rows.weight();
      const std::vector<float> bias = biases_of(gate_and_up);
      if (params.gate_up.weight.bias != nullptr) weight.bias = bias.data();
      const auto num_tokens = static_cast<std::int64_t>(tokens.size());
      const auto num_features = static_cast<std::int64_t>(features.size());
      HostRows gate_up(num_tokens, 2 * num_features, DType::float32), wanted(num_tokens, num_features, DType::float32);
      on_cpu([&](Stream& cpu) {
        linear_swiglu({.gate_up = {.x = x.tensor(), .weight = weight, .y = gate_up.tensor()}, .y = wanted.tensor()},
                      cpu);
      });
      return relative_error(values_of(HostRows(operands.stream(), params.y, tokens), features), wanted.floats());
    };
    prepared.most_error = roundings({dtype}, 2) + 1e-4;  // as linear's
    return prepared;
  };
  return result;
}

OperatorCase embedding_case(const OperatorStep& step) {
  OperatorCase result{.name = "embedding",
                      .shape = fmt::format("{} of {} x {}", step.rows(), step.config.vocab_size, step.config.hidden),
                      .bytes = bytes_of(step.rows(), step.config.hidden, step.dtype) +
                               bytes_of(step.rows(), step.config.hidden, DType::float32)};
  result.prepare = [step](Operands& operands, int) {
    const std::int64_t vocab = std::min<std::int64_t>(step.config.vocab_size, 32768);  // rows of a smaller table
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(step.rows()));
    for (int row = 0; row < step.rows(); ++row)
      tokens[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(uniform(6, static_cast<std::uint32_t>(row), 0) * static_cast<double>(vocab));
    const EmbeddingParams params{.table = operands.weight(vocab, step.config.hidden, step.dtype),
                                 .tokens = operands.array(tokens),
                                 .y = operands.tensor(step.rows(), step.config.hidden, DType::float32)};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { embedding(params, operands.stream()); };
    prepared.check = [params, &operands, tokens] {
      embedding(params, operands.stream());
      const auto rows = sampled(params.y.rows, kCheckedTokens);
      const std::vector<std::int64_t> table_rows = values_at<std::int64_t>(tokens, rows);
      return relative_error(HostRows(operands.stream(), params.y, rows).floats(),
                            HostRows(operands.stream(), params.table, table_rows).floats());
    };
    return prepared;
  };
  return result;
}

OperatorCase gather_case(const OperatorStep& step) {
  OperatorCase result{.name = "gather_rows",
                      .shape = fmt::format("{} of {} x {}", step.batch, step.rows(), step.config.hidden),
                      .calls_per_step = 2,
                      .bytes = 2 * bytes_of(step.batch, step.config.hidden, DType::float32)};
  result.prepare = [step](Operands& operands, int) {
    std::vector<std::int32_t> rows;
    for (int sequence = 1; sequence <= step.batch; ++sequence) rows.push_back(sequence * step.tokens - 1);
    const GatherRowsParams params{.x = operands.tensor(step.rows(), step.config.hidden, DType::float32),
                                  .rows = operands.array(rows),
                                  .y = operands.tensor(step.batch, step.config.hidden, DType::float32)};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { gather_rows(params, operands.stream()); };
    prepared.check = [params, &operands, rows] {
      gather_rows(params, operands.stream());
      const auto places = sampled(params.y.rows, kCheckedTokens);
      const std::vector<std::int64_t> sources = values_at<std::int64_t>(rows, places);
      return relative_error(HostRows(operands.stream(), params.y, places).floats(),
                            HostRows(operands.stream(), params.x, sources).floats());
    };
    return prepared;
  };
  return result;
}

}  // namespace

nlohmann::json peer_step(const OperatorStep& step) {
  const LlamaConfig& config = step.config;
  return {{"mode", "operator"},        {"device", name_of(step.device)},  {"dtype", std::string(name_of(step.dtype))},
          {"batch", step.batch},       {"tokens", step.tokens},           {"context", step.context},
          {"rows", step.rows()},       {"hidden", config.hidden},         {"intermediate", config.intermediate},
          {"heads", config.num_heads}, {"kv_heads", config.num_kv_heads}, {"head_dim", config.head_dim},
          {"vocab", config.vocab_size}};
}

std::vector<OperatorCase> operator_cases(const OperatorStep& step) {
  const LlamaConfig& config = step.config;
  const std::int64_t heads = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_heads = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::int64_t rows = step.rows();
  const int layers = config.num_layers;
  const DType passed = passed_dtype(step);
  std::vector<OperatorCase> gate_up{linear_swiglu_case(step)};
  if (!gates_at_once(step))
    gate_up = {linear_case(step, {LinearRole::gate_up, std::int64_t{2} * config.intermediate, config.hidden, rows,
                                  layers, passed, config.mlp_bias}),
               swiglu_case(step)};
  std::vector<OperatorCase> cases{
      embedding_case(step),
      norm_case(step),
      linear_case(step, {LinearRole::qkv, heads + 2 * kv_heads, config.hidden, rows, layers, passed, config.qkv_bias}),
      rope_append_case(step),
      attention_case(step),
      linear_case(step, {LinearRole::attention_output, config.hidden, heads, rows, layers, delta_dtype(step),
                         config.output_bias})};
  cases.insert(cases.end(), gate_up.begin(), gate_up.end());
  cases.push_back(linear_case(
      step, {LinearRole::down, config.hidden, config.intermediate, rows, layers, delta_dtype(step), config.mlp_bias}));
  if (step.tokens > 1) cases.push_back(gather_case(step));  // otherwise every row is wanted
  cases.push_back(
      linear_case(step, {LinearRole::logits, config.vocab_size, config.hidden, step.batch, 1, DType::float32}));
  return cases;
}

const std::vector<std::string>& operator_names() {
  static const std::vector<std::string> names{"embedding",   "rmsnorm",   "linear", "linear_swiglu",
                                              "rope_append", "attention", "swiglu", "gather_rows"};
  return names;
}

}  // namespace heddle

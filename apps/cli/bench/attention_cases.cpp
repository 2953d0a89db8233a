// Cases of rope_kv_write, latent_kv_write and attention.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "base/checked.h"
#include "base/copy.h"
#include "cli/bench/case_parts.h"
#include "cli/bench/operator_cases.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

// The pages of a step: each sequence's own, in random order; on the device, and the tables on the host.
struct StepPages {
  std::vector<std::int32_t> query_start, context_len, table;
  int pages_per_sequence = 0;
  int num_pages = 0;
};

StepPages pages_of(const OperatorStep& step) {
  StepPages pages;
  const int length = step.context + step.tokens;
  pages.pages_per_sequence = ceil_div(length, step.page_size);
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

PagedSequences on_device(Operands& operands, const PagedSequences& call, const StepPages& pages) {
  return {.query_start = operands.array(pages.query_start),
          .context_len = operands.array(pages.context_len),
          .page_table = operands.array(pages.table),
          .num_sequences = call.num_sequences,
          .page_table_stride = pages.pages_per_sequence,
          .max_query_len = call.max_query_len,
          .max_context_len = call.max_context_len};
}

// A layer's keys and values like the call's: of latent attention they are the same.
PagedKv random_pages(Operands& operands, const PagedKv& call, int num_pages) {
  PagedKv kv = call;
  kv.keys = operands.random(kv.offset(num_pages, 0, 0), kv.dtype, 1);
  kv.values = call.values == call.keys ? kv.keys : operands.random(kv.offset(num_pages, 0, 0), kv.dtype, 1);
  return kv;
}

// The columns of y that somebody reads (AttentionParams::value_dim); zeros for the others.
std::vector<float> read_columns(std::vector<float> rows, const AttentionParams& params) {
  const auto head_dim = static_cast<std::size_t>(params.kv.head_dim);
  if (params.value_dim == 0) return rows;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (i % head_dim >= static_cast<std::size_t>(params.value_dim)) rows[i] = 0;
  return rows;
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
double seen_keys(const OperatorStep& step, int window) {
  double keys = 0;
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
               .window = params.window,
               .value_dim = params.value_dim},
              cpu);
  });
  return read_columns(y.floats(), params);
}

// Keys or values of a few tokens in the cache, head after head.
std::vector<float> written(const void* pages, const PagedKv& kv, std::span<const std::int64_t> tokens, int context) {
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

// Llama's. A model's own do not change the time, and a call has only their address.
std::vector<float> some_frequencies(int head_dim) {
  std::vector<float> inv_freq;
  for (int i = 0; i < head_dim; i += 2)
    inv_freq.push_back(std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(head_dim)));
  return inv_freq;
}

}  // namespace

OperatorCase case_of(const AttentionParams& call, const OperatorStep& step) {
  const int length = step.context + step.tokens, window = call.window;
  const int first = window > 0 ? std::max(0, step.context + 1 - window) : 0;
  const bool is_latent = call.value_dim > 0;
  const int value_dim = is_latent ? call.value_dim : call.kv.head_dim;
  const double values_share = static_cast<double>(value_dim) / call.kv.head_dim;
  const double kv_bytes = (is_latent ? 1.0 : 2.0) * step.batch * (length - first) * call.kv.num_kv_heads *
                          call.kv.head_dim * static_cast<double>(size_of(call.kv.dtype));
  OperatorCase result{
      .name = "attention",
      .shape = fmt::format("{} x {}, {} keys, {}/{} heads of {}{}{}", step.batch, step.tokens, length, call.num_heads,
                           call.kv.num_kv_heads, call.kv.head_dim, is_latent ? fmt::format(" and {}", value_dim) : "",
                           window > 0 ? fmt::format(", window {}", window) : ""),
      .bytes = kv_bytes + bytes_of(call.q) + values_share * bytes_of(call.y),
      .flops = 2.0 * (1 + values_share) * step.batch * seen_keys(step, window) * static_cast<double>(call.q.columns),
      .of_baseline = {{"window", window}},
      .set_bytes = static_cast<std::size_t>(kv_bytes)};
  result.prepare = [call, pages = pages_of(step), context = step.context, tokens = step.tokens](Operands& operands,
                                                                                                int sets) {
    auto all = std::make_shared<std::vector<AttentionParams>>();
    AttentionParams params = call;
    params.q = operands.like(call.q);
    params.y = operands.like(call.y);
    params.sequences = on_device(operands, call.sequences, pages);
    void* plan = nullptr;
    const int num_sequences = call.sequences.num_sequences;
    const std::size_t plan_bytes = call.value_dim > 0 ? latent_plan_bytes(call.q.rows, num_sequences, call.num_heads)
                                                      : attention_plan_bytes(num_sequences, call.kv.num_kv_heads);
    if (operands.stream().device().kind == DeviceKind::cuda) {
      const auto rows = static_cast<int>(call.q.rows);
      params.scratch = operands.zeros(attention_scratch_bytes(rows, num_sequences, call.num_heads, call.kv.head_dim));
      params.plan = plan = operands.zeros(plan_bytes);
    }
    for (int set = 0; set < sets; ++set) {
      params.kv = random_pages(operands, call.kv, pages.num_pages);
      all->push_back(params);
    }
    // Once for all, as a step does for all of its layers: what it costs is part of a step, not of these figures.
    plan_attention({.kv = all->front().kv,
                    .sequences = params.sequences,
                    .num_tokens = call.q.rows,
                    .num_heads = call.num_heads,
                    .window = call.window,
                    .value_dim = call.value_dim,
                    .plan = plan,
                    .plan_bytes = plan_bytes},
                   operands.stream());
    PreparedOperator prepared;
    prepared.call = [all, &operands](int set) { attention((*all)[static_cast<std::size_t>(set)], operands.stream()); };
    prepared.check = [all, &operands, pages, context, tokens] {
      const AttentionParams& first_set = all->front();
      attention(first_set, operands.stream());
      const auto checked = sampled(tokens, 3);
      const auto wanted = attention_on_cpu(operands.stream(), first_set, pages, checked, context);
      return relative_error(read_columns(HostRows(operands.stream(), first_set.y, checked).floats(), first_set),
                            wanted);
    };
    prepared.most_error = roundings({call.q.dtype, call.kv.dtype}, 4);
    return prepared;
  };
  return result;
}

OperatorCase case_of(const LatentKvWriteParams& call, const OperatorStep& step) {
  const auto rows = static_cast<double>(call.q.rows);
  const double cached = rows * call.kv.head_dim * static_cast<double>(size_of(call.kv.dtype));
  const double rotated = rows * call.num_heads * call.rope_dim * static_cast<double>(size_of(call.q.dtype));
  OperatorCase result{
      .name = "latent_kv_write",
      .shape = fmt::format("{} x ({} x {} + {})", call.q.rows, call.num_heads, call.rope_dim, call.kv.head_dim),
      .bytes = 2 * rotated + bytes_of(call.latent) + cached};
  result.prepare = [call, pages = pages_of(step), context = step.context, step_tokens = step.tokens](Operands& operands,
                                                                                                     int) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(call.q.rows));
    for (std::size_t row = 0; row < positions.size(); ++row)
      positions[row] = context + static_cast<std::int32_t>(row) % step_tokens;
    LatentKvWriteParams params = call;
    params.q = operands.like(call.q);
    params.latent = operands.like(call.latent);
    // Where latent attention is expanded, queries are rotated in place.
    params.query = call.query.columns == call.q.columns ? params.q : operands.like(call.query);
    params.positions = operands.array(positions);
    params.inv_freq = operands.array(some_frequencies(call.rope_dim));
    params.kv = random_pages(operands, call.kv, pages.num_pages);
    params.sequences = on_device(operands, call.sequences, pages);
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { latent_kv_write(params, operands.stream()); };
    prepared.check = [params, &operands, pages, context, step_tokens] {
      latent_kv_write(params, operands.stream());
      const auto tokens = sampled(step_tokens, kCheckedTokens);  // of the first sequence
      const std::vector<float> latents = HostRows(operands.stream(), params.latent, tokens).floats();
      const std::span table(pages.table.data(), static_cast<std::size_t>(pages.pages_per_sequence));
      const HostPages kv = download_pages(operands.stream(), params.kv, table);
      std::vector<float> got = written(kv.view.keys, kv.view, tokens, context), wanted = latents;
      // The latents, which stay as they are; tests have the rotated part.
      const auto width = static_cast<std::size_t>(params.kv.head_dim);
      for (std::size_t i = 0; i < got.size(); ++i)
        if (i % width >= width - static_cast<std::size_t>(params.rope_dim)) got[i] = wanted[i] = 0;
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.kv.dtype}, 2);
    return prepared;
  };
  return result;
}

OperatorCase case_of(const RopeKvWriteParams& call, const OperatorStep& step) {
  const double written_bytes =
      2 * static_cast<double>(call.k.rows * call.k.columns) * static_cast<double>(size_of(call.kv.dtype));
  OperatorCase result{.name = "rope_kv_write",
                      .shape = fmt::format("{} x ({} + 2 x {})", call.q.rows, call.q.columns, call.k.columns),
                      .bytes = 2 * bytes_of(call.q) + bytes_of(call.k) + bytes_of(call.v) + written_bytes};
  result.prepare = [call, pages = pages_of(step), context = step.context, step_tokens = step.tokens](Operands& operands,
                                                                                                     int) {
    const std::vector<float> inv_freq = some_frequencies(call.kv.head_dim);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(call.q.rows));
    for (std::size_t row = 0; row < positions.size(); ++row)
      positions[row] = context + static_cast<std::int32_t>(row) % step_tokens;
    RopeKvWriteParams params = call;
    params.q = operands.like(call.q);
    params.k = operands.like(call.k);
    params.v = operands.like(call.v);
    params.positions = operands.array(positions);
    params.inv_freq = operands.array(inv_freq);
    params.kv = random_pages(operands, call.kv, pages.num_pages);
    params.sequences = on_device(operands, call.sequences, pages);
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { rope_kv_write(params, operands.stream()); };
    prepared.check = [params, &operands, positions, inv_freq, pages, context, step_tokens] {
      const auto tokens = sampled(step_tokens, kCheckedTokens);  // of the first sequence
      HostRows q = HostRows(operands.stream(), params.q, tokens).widened();
      HostRows k = HostRows(operands.stream(), params.k, tokens).widened();
      const HostRows v = HostRows(operands.stream(), params.v, tokens).widened();
      rope_kv_write(params, operands.stream());
      const std::vector<std::int32_t> positions_of_tokens = values_at<std::int32_t>(positions, tokens);
      on_cpu([&](Stream& cpu) {
        rope({.q = q.tensor(),
              .k = k.tensor(),
              .positions = positions_of_tokens.data(),
              .inv_freq = inv_freq.data(),
              .head_dim = params.kv.head_dim,
              .scale = params.scale},
             cpu);
      });
      const std::span table(pages.table.data(), static_cast<std::size_t>(pages.pages_per_sequence));
      const HostPages kv = download_pages(operands.stream(), params.kv, table);
      return std::max({relative_error(HostRows(operands.stream(), params.q, tokens).floats(), q.floats()),
                       relative_error(written(kv.view.keys, kv.view, tokens, context), k.floats()),
                       relative_error(written(kv.view.values, kv.view, tokens, context), v.floats())});
    };
    prepared.most_error = roundings({call.q.dtype, call.kv.dtype}, 3) + 1e-6;
    return prepared;
  };
  return result;
}

}  // namespace heddle

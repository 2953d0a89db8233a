// Cases of gather_latents and expanded_attention: what a step with long chunks has of them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/checked.h"
#include "cli/bench/case_parts.h"
#include "cli/bench/operator_cases.h"

namespace heddle {
namespace {

// The keys of the call that queries see, over all of them.
double seen_of_call(const ExpandedAttentionParams& call) {
  double keys = 0;
  for (int s = 0; s < call.sequences.count; ++s) {
    const ExpandedSequence& sequence = call.sequences[s];
    for (int i = 0; i < sequence.num_tokens; ++i)
      keys += std::clamp(sequence.first_query - call.first_key + i + 1, 0, sequence.num_keys);
  }
  return keys;
}

}  // namespace

OperatorCase case_of(const ExpandedAttentionParams& call, const OperatorStep&) {
  const std::int64_t key_dim = call.q.columns / call.num_heads;
  const std::size_t state_floats = expanded_state_floats(call.q.rows, call.num_heads, call.value_dim);
  const double state_bytes = static_cast<double>(state_floats * sizeof(float));
  OperatorCase result{
      .name = "expanded_attention",
      .shape = fmt::format("{} x {} after {}, {} keys from {}, {} heads of {} and {}", call.sequences.count,
                           call.sequences[0].num_tokens, call.sequences[0].first_query, call.sequences[0].num_keys,
                           call.first_key, call.num_heads, key_dim, call.value_dim),
      .bytes = bytes_of(call.q) + bytes_of(call.keys_values) + bytes_of(call.shared_keys) +
               (call.before != nullptr ? state_bytes : 0) + (call.after != nullptr ? state_bytes : bytes_of(call.y)),
      .flops = 2 * seen_of_call(call) * call.num_heads * static_cast<double>(key_dim + call.value_dim)};
  result.prepare = [call, state_floats](Operands& operands, int) {
    ExpandedAttentionParams params = call;
    params.q = operands.like(call.q);
    params.keys_values = operands.like(call.keys_values);
    params.shared_keys = operands.like(call.shared_keys);
    params.y = operands.like(call.y);
    auto* const state = static_cast<float*>(operands.zeros(state_floats * sizeof(float)));
    if (call.before != nullptr) params.before = state;
    if (call.after != nullptr) params.after = state;
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { expanded_attention(params, operands.stream()); };
    // Some rows of the first sequence, each by itself, as if its keys were the first ones.
    prepared.check = [params, &operands] {
      ExpandedSequence sequence = params.sequences[0];
      sequence.first_query = std::max(0, sequence.first_query - params.first_key);
      ExpandedAttentionParams first = params;
      first.q = params.q.row_slice(0, sequence.num_tokens);
      first.y = params.y.row_slice(0, sequence.num_tokens);
      first.keys_values = params.keys_values.row_slice(0, sequence.num_keys);
      first.shared_keys = params.shared_keys.row_slice(0, sequence.num_keys);
      first.sequences = sequence;
      first.first_key = 0;
      first.before = first.after = nullptr;
      expanded_attention(first, operands.stream());
      const auto tokens = sampled(first.q.rows, 3);
      std::vector<std::int64_t> keys(static_cast<std::size_t>(sequence.num_keys));
      std::iota(keys.begin(), keys.end(), 0);
      HostRows q = HostRows(operands.stream(), first.q, tokens).widened();
      HostRows keys_values = HostRows(operands.stream(), first.keys_values, keys).widened();
      HostRows shared = HostRows(operands.stream(), first.shared_keys, keys).widened();
      HostRows y(static_cast<std::int64_t>(tokens.size()), first.y.columns, DType::float32);
      on_cpu([&](Stream& cpu) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          ExpandedAttentionParams one = first;
          const auto row = static_cast<std::int64_t>(i);
          one.q = q.tensor().row_slice(row, 1);
          one.keys_values = keys_values.tensor();
          one.shared_keys = shared.tensor();
          one.y = y.tensor().row_slice(row, 1);
          one.sequences = ExpandedSequence{.num_tokens = 1,
                                           .first_query = sequence.first_query + static_cast<int>(tokens[i]),
                                           .num_keys = sequence.num_keys};
          expanded_attention(one, cpu);
        }
      });
      return relative_error(HostRows(operands.stream(), first.y, tokens).floats(), y.floats());
    };
    prepared.most_error = roundings({call.q.dtype}, 4);
    return prepared;
  };
  return result;
}

OperatorCase case_of(const GatherLatentsParams& call, const OperatorStep&) {
  OperatorCase result{.name = "gather_latents",
                      .shape = fmt::format("{} x {} from {}", call.rows.rows, call.rows.columns, call.first),
                      .bytes = 2 * bytes_of(call.rows)};
  result.prepare = [call](Operands& operands, int) {
    const int of_sequence = ceil_div(call.first + call.sequences[0].num_keys, call.kv.page_size);
    const int pages = of_sequence * call.sequences.count;
    std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
    std::iota(table.rbegin(), table.rend(), 0);
    GatherLatentsParams params = call;
    params.page_table = operands.array(table);
    params.page_table_stride = of_sequence;  // sequences of a bench are equal
    params.kv.keys = params.kv.values = operands.random(call.kv.offset(pages, 0, 0), call.kv.dtype, 1);
    params.rows = operands.like(call.rows);
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { gather_latents(params, operands.stream()); };
    prepared.check = [params, &operands, table] {
      gather_latents(params, operands.stream());
      const auto rows = sampled(params.sequences[0].num_keys, kCheckedTokens);  // of the first sequence
      std::vector<std::int64_t> slots;
      for (const std::int64_t row : rows) {
        const std::int64_t position = params.first + row, page_size = params.kv.page_size;
        slots.push_back(table[static_cast<std::size_t>(position / page_size)] * page_size + position % page_size);
      }
      const Tensor cached{params.kv.keys, static_cast<std::int64_t>(table.size()) * params.kv.page_size,
                          params.kv.head_dim, params.kv.head_dim, params.kv.dtype};
      return relative_error(HostRows(operands.stream(), params.rows, rows).floats(),
                            HostRows(operands.stream(), cached, slots).floats());
    };
    prepared.most_error = roundings({call.rows.dtype}, 1);
    return prepared;
  };
  return result;
}

}  // namespace heddle

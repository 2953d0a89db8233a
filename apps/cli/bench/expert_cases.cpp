// Cases of a mixture of experts, and of matrices of heads.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

#include "cli/bench/case_parts.h"
#include "cli/bench/operator_cases.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

constexpr std::int64_t kCheckedColumns = 61;

// Which experts the tokens choose: each `top_k` different ones of `num_experts`.
std::vector<std::int32_t> random_choice(std::int64_t num_tokens, int top_k, int num_experts, std::uint64_t seed) {
  std::vector<std::int32_t> chosen;
  std::vector<std::int32_t> all(static_cast<std::size_t>(num_experts));
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    std::iota(all.begin(), all.end(), 0);
    for (int k = 0; k < top_k; ++k) {
      const double at = uniform(seed, static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(k));
      std::swap(all[static_cast<std::size_t>(k)],
                all[static_cast<std::size_t>(k) + static_cast<std::size_t>(at * (num_experts - k))]);
      chosen.push_back(all[static_cast<std::size_t>(k)]);
    }
  }
  return chosen;
}

// The first row of each group, then the number of rows.
std::vector<std::int32_t> first_rows(const std::vector<std::int32_t>& chosen, int num_experts) {
  std::vector<std::int32_t> first(static_cast<std::size_t>(num_experts) + 1);
  for (const std::int32_t expert : chosen) ++first[static_cast<std::size_t>(expert) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

double groups_with_rows(const std::vector<std::int32_t>& first) {
  double groups = 0;
  for (std::size_t g = 0; g + 1 < first.size(); ++g) groups += first[g + 1] > first[g] ? 1 : 0;
  return groups;
}

double dot_of(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

std::vector<float> host_row(Stream& stream, const Weight& weight, std::int64_t row) {
  const std::int64_t rows[] = {row};
  return HostRows(stream, weight, rows).floats();
}

std::vector<float> host_row(Stream& stream, const Tensor& tensor, std::int64_t row) {
  const std::int64_t rows[] = {row};
  return HostRows(stream, tensor, rows).floats();
}

// A table of weights in device memory, as a group takes it.
struct Experts {
  std::vector<Weight> weights;
  const void* const* table = nullptr;
};

Experts random_experts(Operands& operands, const WeightGroup& group) {
  Experts experts;
  std::vector<const void*> first;
  for (int g = 0; g < group.count; ++g) {
    const Weight& of = group.weights[g];
    experts.weights.push_back(operands.weight(of.out_features, of.in_features, of.dtype));
    first.push_back(experts.weights.back().row(0));
  }
  if (operands.stream().device().kind == DeviceKind::cuda) experts.table = operands.array(first);
  return experts;
}

// What a step's tokens choose, and what the experts cost that they choose.
struct ExpertSample {
  int top_k, count;
  double groups, read_bytes, flops;

  ExpertSample(const WeightGroup& group, std::int64_t num_rows, int num_tokens)
      : top_k(static_cast<int>(num_rows / num_tokens)),
        count(group.count),
        groups(groups_with_rows(first_rows(random_choice(num_tokens, top_k, count, 0), count))),
        read_bytes(groups * static_cast<double>(group.weights[0].size_bytes())),
        flops(2.0 * static_cast<double>(num_rows) * static_cast<double>(group.weights[0].out_features) *
              static_cast<double>(group.weights[0].in_features)) {}

  std::string text(const Weight& one, std::int64_t num_rows) const {
    return fmt::format("{} x {} x {}, {} of {}", num_rows, one.out_features, one.in_features, groups, count);
  }
};

// The rows of a step's tokens, expert after expert.
struct GroupedRows {
  std::vector<std::int32_t> first, token_of;

  GroupedRows(int num_tokens, int top_k, int count, int set) {
    const std::vector<std::int32_t> chosen = random_choice(num_tokens, top_k, count, static_cast<std::uint64_t>(set));
    first = first_rows(chosen, count);
    std::vector<std::int32_t> next = first;
    token_of.resize(chosen.size());
    for (std::size_t pair = 0; pair < chosen.size(); ++pair)
      token_of[static_cast<std::size_t>(next[static_cast<std::size_t>(chosen[pair])]++)] =
          static_cast<std::int32_t>(pair) / top_k;
  }

  std::size_t group_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), row) - first.begin()) - 1;
  }
};

// Sets have the same weights and other choices.
struct GroupedSets {
  Experts experts;
  std::vector<GroupedRows> rows;

  GroupedSets(Operands& operands, const std::vector<Weight>& shapes, int num_tokens, int top_k, int sets)
      : experts(random_experts(operands, {.weights = shapes.data(), .count = static_cast<int>(shapes.size())})) {
    for (int set = 0; set < sets; ++set) rows.emplace_back(num_tokens, top_k, static_cast<int>(shapes.size()), set);
  }

  WeightGroup group() const {
    return {
        .weights = experts.weights.data(), .table = experts.table, .count = static_cast<int>(experts.weights.size())};
  }
};

std::vector<Weight> shapes_of(const WeightGroup& group) {
  return {group.weights, group.weights + group.count};
}

}  // namespace

OperatorCase case_of(const HeadLinearParams& call, const OperatorStep&) {
  const double heads = call.num_heads, rows = static_cast<double>(call.x.rows);
  const auto in = static_cast<double>(call.weight.in_features), out = static_cast<double>(call.out_features());
  OperatorCase result{
      .name = "head_linear",
      .shape = fmt::format("{} x {} heads x {} x {}", call.x.rows, call.num_heads, out, in),
      .bytes = static_cast<double>(call.weight.size_bytes()) +
               rows * heads *
                   (in * static_cast<double>(size_of(call.x.dtype)) + out * static_cast<double>(size_of(call.y.dtype))),
      .flops = 2 * rows * heads * in * out,
      .set_bytes = call.weight.size_bytes()};
  result.prepare = [call](Operands& operands, int sets) {
    auto all = std::make_shared<std::vector<HeadLinearParams>>();
    HeadLinearParams next = call;
    next.x = operands.like(call.x);
    next.y = operands.like(call.y);
    for (int set = 0; set < sets; ++set) {
      next.weight = operands.weight(call.weight.out_features, call.weight.in_features, call.weight.dtype);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, &operands](int set) {
      head_linear((*all)[static_cast<std::size_t>(set)], operands.stream());
    };
    prepared.check = [all, &operands] {
      const HeadLinearParams& params = all->front();
      Stream& stream = operands.stream();
      head_linear(params, stream);
      std::vector<float> got, wanted;
      const std::int64_t of_head = params.out_features();
      for (const std::int64_t token : sampled(params.x.rows, kCheckedTokens)) {
        const std::vector<float> x = host_row(stream, params.x, token), y = host_row(stream, params.y, token);
        for (const std::int64_t row : sampled(params.weight.out_features, kCheckedColumns)) {
          const std::int64_t head = row / of_head;
          got.push_back(y[static_cast<std::size_t>(head * params.y_stride + row % of_head)]);
          wanted.push_back(
              static_cast<float>(dot_of(x.data() + head * params.x_stride, host_row(stream, params.weight, row).data(),
                                        params.weight.in_features)));
        }
      }
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-4;
    return prepared;
  };
  return result;
}

OperatorCase case_of(const RouteParams& call, const OperatorStep&) {
  OperatorCase result{.name = "route",
                      .shape = fmt::format("{} x {} of {}", call.logits.rows, call.rule.top_k, call.logits.columns),
                      .bytes = bytes_of(call.logits) + 8.0 * static_cast<double>(call.logits.rows) * call.rule.top_k};
  result.prepare = [call](Operands& operands, int) {
    const auto pairs = static_cast<std::size_t>(call.logits.rows * call.rule.top_k);
    RouteParams params = call;
    params.logits = operands.like(call.logits);
    if (call.bias != nullptr)
      params.bias = static_cast<const float*>(
          operands.random(static_cast<std::size_t>(call.logits.columns), DType::float32, 0.1));
    params.experts = static_cast<std::int32_t*>(operands.zeros(4 * pairs));
    params.weights = static_cast<float*>(operands.zeros(4 * pairs));
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { route(params, operands.stream()); };
    prepared.check = [params, &operands] {
      Stream& stream = operands.stream();
      route(params, stream);
      const auto tokens = sampled(params.logits.rows, kCheckedTokens);
      HostRows logits(stream, params.logits, tokens);
      const std::int64_t rows = logits.rows(), top_k = params.rule.top_k;
      std::vector<std::int32_t> experts(static_cast<std::size_t>(rows * top_k));
      std::vector<float> wanted(experts.size()), bias;
      const std::int64_t only[] = {0};
      if (params.bias != nullptr)
        bias =
            HostRows(stream,
                     {const_cast<float*>(params.bias), 1, params.logits.columns, params.logits.columns, DType::float32},
                     only)
                .floats();
      on_cpu([&](Stream& cpu) {
        route({.logits = logits.tensor(),
               .bias = bias.empty() ? nullptr : bias.data(),
               .rule = params.rule,
               .experts = experts.data(),
               .weights = wanted.data()},
              cpu);
      });
      const Tensor weights{params.weights, params.logits.rows, top_k, top_k, DType::float32};
      return relative_error(HostRows(stream, weights, tokens).floats(), wanted);
    };
    prepared.most_error = 1e-5;
    return prepared;
  };
  return result;
}

OperatorCase case_of(const GroupRowsParams& call, const OperatorStep&) {
  const auto pairs = static_cast<std::size_t>(call.num_tokens * call.top_k);
  OperatorCase result{.name = "group_rows",
                      .shape = fmt::format("{} x {} of {}", call.num_tokens, call.top_k, call.num_experts),
                      .bytes = 12.0 * static_cast<double>(pairs) + 4.0 * call.num_experts};
  result.prepare = [call, pairs](Operands& operands, int) {
    const std::vector<std::int32_t> chosen = random_choice(call.num_tokens, call.top_k, call.num_experts, 8);
    GroupRowsParams params = call;
    params.experts = operands.array(chosen);
    params.first_row = static_cast<std::int32_t*>(operands.zeros(4 * (static_cast<std::size_t>(call.num_experts) + 1)));
    params.token_of = static_cast<std::int32_t*>(operands.zeros(4 * pairs));
    params.row_of = static_cast<std::int32_t*>(operands.zeros(4 * pairs));
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { group_rows(params, operands.stream()); };
    prepared.check = [params, &operands, chosen] {
      group_rows(params, operands.stream());
      operands.stream().synchronize();
      const std::vector<std::int32_t> wanted = first_rows(chosen, params.num_experts);
      const std::int64_t count = params.num_experts + 1;
      // Small integers are floats whose bits say the same; HostRows only copies.
      const std::vector<float> got =
          host_row(operands.stream(), {params.first_row, 1, count, count, DType::float32}, 0);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (std::bit_cast<std::int32_t>(got[i]) != wanted[i]) return 1.0;
      return 0.0;
    };
    return prepared;
  };
  return result;
}

OperatorCase case_of(const GroupedLinearParams& call, const OperatorStep& step) {
  const ExpertSample choice(call.group, call.x.rows, step.rows());
  OperatorCase result{.name = "grouped_linear",
                      .shape = choice.text(call.group.weights[0], call.x.rows),
                      .bytes = choice.read_bytes + bytes_of(call.x) + bytes_of(call.y),
                      .flops = choice.flops,
                      .set_bytes = static_cast<std::size_t>(choice.read_bytes)};
  result.prepare = [call, shapes = shapes_of(call.group), top_k = choice.top_k, tokens = step.rows()](
                       Operands& operands, int sets) {
    const auto made = std::make_shared<GroupedSets>(operands, shapes, tokens, top_k, sets);
    auto all = std::make_shared<std::vector<GroupedLinearParams>>();
    GroupedLinearParams next{.x = operands.like(call.x), .group = made->group(), .y = operands.like(call.y)};
    for (const GroupedRows& rows : made->rows) {
      next.first_row = operands.array(rows.first);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, made, &operands](int set) {
      grouped_linear((*all)[static_cast<std::size_t>(set)], operands.stream());
    };
    prepared.check = [all, made, &operands] {
      const GroupedLinearParams& params = all->front();
      Stream& stream = operands.stream();
      grouped_linear(params, stream);
      std::vector<float> got, wanted;
      for (const std::int64_t row : sampled(params.x.rows, 4)) {
        const Weight& weight = made->experts.weights[made->rows.front().group_of(row)];
        const std::vector<float> x = host_row(stream, params.x, row), y = host_row(stream, params.y, row);
        for (const std::int64_t column : sampled(params.y.columns, kCheckedColumns)) {
          got.push_back(y[static_cast<std::size_t>(column)]);
          wanted.push_back(
              static_cast<float>(dot_of(x.data(), host_row(stream, weight, column).data(), params.x.columns)));
        }
      }
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-4;
    return prepared;
  };
  return result;
}

OperatorCase case_of(const GroupedSwigluParams& call, const OperatorStep& step) {
  const GroupedLinearParams& product = call.gate_up;
  const ExpertSample choice(product.group, call.y.rows, step.rows());
  OperatorCase result{.name = "grouped_swiglu",
                      .shape = choice.text(product.group.weights[0], call.y.rows),
                      .bytes = choice.read_bytes + bytes_of(call.x) + bytes_of(call.y),
                      .flops = choice.flops,
                      .set_bytes = static_cast<std::size_t>(choice.read_bytes)};
  result.prepare = [call, shapes = shapes_of(product.group), top_k = choice.top_k, tokens = step.rows()](
                       Operands& operands, int sets) {
    const auto made = std::make_shared<GroupedSets>(operands, shapes, tokens, top_k, sets);
    auto all = std::make_shared<std::vector<GroupedSwigluParams>>();
    GroupedSwigluParams next{
        .x = operands.like(call.x),
        .gate_up = {.x = operands.like(call.gate_up.x), .group = made->group(), .y = operands.like(call.gate_up.y)},
        .y = operands.like(call.y)};
    for (const GroupedRows& rows : made->rows) {
      next.gate_up.first_row = operands.array(rows.first);
      next.token_of = operands.array(rows.token_of);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, made, &operands](int set) {
      grouped_swiglu((*all)[static_cast<std::size_t>(set)], operands.stream());
    };
    prepared.check = [all, made, &operands] {
      const GroupedSwigluParams& params = all->front();
      Stream& stream = operands.stream();
      grouped_swiglu(params, stream);
      const GroupedRows& rows = made->rows.front();
      std::vector<float> got, wanted;
      for (const std::int64_t row : sampled(params.y.rows, 4)) {
        const Weight& weight = made->experts.weights[rows.group_of(row)];
        const std::vector<float> y = host_row(stream, params.y, row),
                                 x = host_row(stream, params.x, rows.token_of[static_cast<std::size_t>(row)]);
        for (const std::int64_t column : sampled(params.y.columns, kCheckedColumns)) {
          const double gate = dot_of(x.data(), host_row(stream, weight, column).data(), params.x.columns);
          const double up =
              dot_of(x.data(), host_row(stream, weight, params.y.columns + column).data(), params.x.columns);
          got.push_back(y[static_cast<std::size_t>(column)]);
          wanted.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * up));
        }
      }
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.y.dtype}, 4) + 1e-4;
    return prepared;
  };
  return result;
}

OperatorCase case_of(const CombineExpertsParams& call, const OperatorStep&) {
  OperatorCase result{.name = "combine_experts",
                      .shape = fmt::format("{} of {} x {}", call.y.rows, call.x.rows, call.y.columns),
                      .bytes = bytes_of(call.x) + bytes_of(call.y) * (call.shared.data != nullptr ? 2 : 1)};
  result.prepare = [call](Operands& operands, int) {
    const bool has_shared = call.shared.data != nullptr;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(call.x.rows));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(rows.size() - 1 - i);
    const std::vector<float> weights(rows.size(), 0.25F);
    CombineExpertsParams params = call;
    params.x = operands.like(call.x);
    params.y = operands.like(call.y);
    if (has_shared) params.shared = operands.like(call.shared);
    params.row_of = operands.array(rows);
    params.weights = operands.array(weights);
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { combine_experts(params, operands.stream()); };
    prepared.check = [params, &operands, has_shared] {
      Stream& stream = operands.stream();
      combine_experts(params, stream);
      std::vector<float> got, wanted;
      for (const std::int64_t token : sampled(params.y.rows, 4)) {
        const std::vector<float> y = host_row(stream, params.y, token);
        std::vector<float> sum(y.size());
        if (has_shared) sum = host_row(stream, params.shared, token);
        for (int k = 0; k < params.top_k; ++k) {
          const std::vector<float> x = host_row(stream, params.x, params.x.rows - 1 - (token * params.top_k + k));
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += 0.25F * x[i];
        }
        got.insert(got.end(), y.begin(), y.end());
        wanted.insert(wanted.end(), sum.begin(), sum.end());
      }
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-5;
    return prepared;
  };
  return result;
}

// The choice is the router's: sets have other logits. Bytes are those of the experts that the first set's tokens choose when
// each chooses at random, as in the other cases.
OperatorCase case_of(const MixtureParams& call, const OperatorStep& step) {
  const ExpertSample choice(call.gate_up, call.gated.rows, step.rows());
  const double shared = static_cast<double>(call.shared_gate_up.size_bytes() + call.shared_down.size_bytes());
  const double routed = choice.read_bytes + choice.groups * static_cast<double>(call.down.weights[0].size_bytes());
  OperatorCase result{.name = "mixture",
                      .shape = choice.text(call.gate_up.weights[0], call.gated.rows),
                      .bytes = routed + shared + bytes_of(call.x) + bytes_of(call.y),
                      .flops = 1.5 * choice.flops + shared * static_cast<double>(step.rows()),
                      .set_bytes = static_cast<std::size_t>(routed + shared)};
  result.prepare = [call, gate_up = shapes_of(call.gate_up), down = shapes_of(call.down)](Operands& operands,
                                                                                          int sets) {
    const auto first = std::make_shared<Experts>(
        random_experts(operands, {.weights = gate_up.data(), .count = static_cast<int>(gate_up.size())}));
    const auto second = std::make_shared<Experts>(
        random_experts(operands, {.weights = down.data(), .count = static_cast<int>(down.size())}));
    MixtureParams next = call;
    next.x = operands.like(call.x);
    next.gate_up = {.weights = first->weights.data(), .table = first->table, .count = call.gate_up.count};
    next.down = {.weights = second->weights.data(), .table = second->table, .count = call.down.count};
    if (call.bias != nullptr)
      next.bias = static_cast<const float*>(
          operands.random(static_cast<std::size_t>(call.logits.columns), DType::float32, 0.1));
    next.experts = static_cast<std::int32_t*>(operands.zeros(4 * static_cast<std::size_t>(call.gated.rows)));
    next.gated = operands.like(call.gated);
    next.y = operands.like(call.y);
    if (call.has_shared()) next.shared_gated = operands.like(call.shared_gated);
    auto all = std::make_shared<std::vector<MixtureParams>>();
    for (int set = 0; set < sets; ++set) {
      next.logits = operands.like(call.logits);
      if (call.has_shared()) {
        const Weight &up = call.shared_gate_up, &back = call.shared_down;
        next.shared_gate_up = operands.weight(up.out_features, up.in_features, up.dtype);
        next.shared_down = operands.weight(back.out_features, back.in_features, back.dtype);
      }
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, first, second, &operands](int set) {
      mixture((*all)[static_cast<std::size_t>(set)], operands.stream());
    };
    // Against the tokens' gates as the first kernel leaves them: its own numbers are those of the test.
    prepared.check = [all, first, second, &operands] {
      const MixtureParams& params = all->front();
      Stream& stream = operands.stream();
      mixture(params, stream);
      const int top_k = params.rule.top_k;
      const std::int64_t pairs = params.gated.rows;
      std::vector<float> got, wanted;
      const Tensor chosen{params.experts, 1, pairs, pairs, DType::float32};  // whose bits are integers
      const std::vector<float> experts = host_row(stream, chosen, 0);
      for (const std::int64_t token : sampled(params.x.rows, 2)) {
        const std::vector<float> y = host_row(stream, params.y, token);
        for (const std::int64_t row : sampled(params.y.columns, kCheckedColumns)) {
          double sum = 0;
          if (params.has_shared())
            sum = dot_of(host_row(stream, params.shared_gated, token).data(),
                         host_row(stream, params.shared_down, row).data(), params.shared_gated.columns);
          for (std::int64_t pair = token * top_k; pair < (token + 1) * top_k; ++pair) {
            const auto expert = std::bit_cast<std::uint32_t>(experts[static_cast<std::size_t>(pair)]);
            sum += dot_of(host_row(stream, params.gated, pair).data(),
                          host_row(stream, second->weights.at(expert), row).data(), params.gated.columns);
          }
          got.push_back(y[static_cast<std::size_t>(row)]);
          wanted.push_back(static_cast<float>(sum));
        }
      }
      return relative_error(got, wanted);
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-4;
    return prepared;
  };
  return result;
}

}  // namespace heddle

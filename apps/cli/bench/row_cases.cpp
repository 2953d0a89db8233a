// Cases of embedding, gather_rows, rmsnorm and swiglu.
#include <fmt/format.h>

#include "cli/bench/case_parts.h"
#include "cli/bench/operator_cases.h"
#include "kernels/sampling/random.h"

namespace heddle {
namespace {

constexpr std::int64_t kTableRows = 32768;  // of a smaller embedding

// A norm in place takes what its last call has left, so its weights must neither let numbers grow nor vanish.
std::vector<float> signs(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(i * 7 % 17 < 8 ? -1.0F : 1.0F);
  return values;
}

}  // namespace

OperatorCase case_of(const EmbeddingParams& call, const OperatorStep&) {
  const std::int64_t rows = call.y.rows, vocab = call.table.out_features, hidden = call.table.in_features;
  OperatorCase result{
      .name = "embedding",
      .shape = fmt::format("{} of {} x {}", rows, vocab, hidden),
      .bytes = static_cast<double>(rows) * static_cast<double>(call.table.row_bytes()) + bytes_of(call.y)};
  result.prepare = [call, rows, hidden, vocab = std::min(vocab, kTableRows)](Operands& operands, int) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
    for (std::size_t row = 0; row < tokens.size(); ++row)
      tokens[row] =
          static_cast<std::int32_t>(uniform(6, static_cast<std::uint32_t>(row), 0) * static_cast<double>(vocab));
    const EmbeddingParams params{.table = operands.weight(vocab, hidden, call.table.dtype),
                                 .tokens = operands.array(tokens),
                                 .y = operands.like(call.y)};
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { embedding(params, operands.stream()); };
    prepared.check = [params, &operands, tokens] {
      embedding(params, operands.stream());
      const auto checked = sampled(params.y.rows, kCheckedTokens);
      const std::vector<std::int64_t> table_rows = values_at<std::int64_t>(tokens, checked);
      return relative_error(HostRows(operands.stream(), params.y, checked).floats(),
                            HostRows(operands.stream(), params.table, table_rows).floats());
    };
    return prepared;
  };
  return result;
}

OperatorCase case_of(const GatherRowsParams& call, const OperatorStep& step) {
  OperatorCase result{
      .name = "gather_rows",
      .shape = fmt::format("{} of {} x {}, {}", call.y.rows, call.x.rows, call.x.columns, name_of(call.x.dtype)),
      .bytes = 2 * bytes_of(call.y)};
  result.prepare = [call, batch = step.batch, tokens = step.tokens](Operands& operands, int) {
    std::vector<std::int32_t> rows;
    if (call.y.rows == batch)
      for (int sequence = 1; sequence <= batch; ++sequence) rows.push_back(sequence * tokens - 1);
    else  // a token for each of its experts
      for (std::int64_t row = 0; row < call.y.rows; ++row)
        rows.push_back(static_cast<std::int32_t>(row * call.x.rows / call.y.rows));
    const GatherRowsParams params{.x = operands.like(call.x), .rows = operands.array(rows), .y = operands.like(call.y)};
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

OperatorCase case_of(const RmsNormParams& call, const OperatorStep&) {
  const std::int64_t hidden = call.x.columns / call.num_heads;
  const bool has_residual = call.residual.data != nullptr, in_place = call.y.data == call.x.data;
  const bool of_heads = call.num_heads > 1 || in_place;  // a model with one KV head has one
  OperatorCase result{
      .name = of_heads ? "rmsnorm heads" : "rmsnorm",
      .shape = of_heads ? fmt::format("{} x {} heads of {}", call.x.rows, call.num_heads, hidden)
                        : fmt::format("{} x {}{}", call.x.rows, hidden, has_residual ? ", with a residual" : ""),
      .bytes = (has_residual ? 2 * bytes_of(call.residual) : 0) + bytes_of(call.x) + bytes_of(call.y) +
               static_cast<double>(hidden) * sizeof(float),
      .of_baseline = {{"rows", call.x.rows}, {"residual", has_residual}, {"heads_alone", of_heads}}};
  result.prepare = [call, hidden, has_residual, in_place](Operands& operands, int) {
    RmsNormParams params = call;
    params.x = operands.like(call.x);
    params.weight =
        in_place ? operands.array(signs(hidden)) : operands.random(static_cast<std::size_t>(hidden), DType::float32, 1);
    if (has_residual) params.residual = operands.like(call.residual);
    params.y = in_place ? params.x : operands.like(call.y);
    PreparedOperator prepared;
    prepared.call = [params, &operands](int) { rmsnorm(params, operands.stream()); };
    prepared.check = [params, hidden, has_residual, &operands] {
      const auto tokens = sampled(params.x.rows, kCheckedTokens);
      const std::int64_t only[] = {0};
      HostRows x = HostRows(operands.stream(), params.x, tokens).widened();
      HostRows residual(0, params.x.columns, DType::float32);
      if (has_residual) residual = HostRows(operands.stream(), params.residual, tokens);
      HostRows weight(operands.stream(), Tensor{const_cast<void*>(params.weight), 1, hidden, hidden, DType::float32},
                      only);
      rmsnorm(params, operands.stream());
      HostRows y(static_cast<std::int64_t>(tokens.size()), params.x.columns, DType::float32);
      on_cpu([&](Stream& cpu) {
        rmsnorm({.x = x.tensor(),
                 .weight = weight.tensor().data,
                 .residual = has_residual ? residual.tensor() : Tensor{},
                 .y = y.tensor(),
                 .eps = params.eps,
                 .num_heads = params.num_heads},
                cpu);
      });
      const double error = relative_error(HostRows(operands.stream(), params.y, tokens).floats(), y.floats());
      if (!has_residual) return error;
      return std::max(error,
                      relative_error(HostRows(operands.stream(), params.residual, tokens).floats(), residual.floats()));
    };
    prepared.most_error = roundings({call.y.dtype}, 2);
    return prepared;
  };
  return result;
}

OperatorCase case_of(const SwigluParams& call, const OperatorStep&) {
  OperatorCase result{.name = "swiglu",
                      .shape = fmt::format("{} x {}", call.y.rows, call.y.columns),
                      .bytes = bytes_of(call.gate_up) + bytes_of(call.y)};
  result.prepare = [call](Operands& operands, int) {
    const SwigluParams params{.gate_up = operands.like(call.gate_up), .y = operands.like(call.y)};
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
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-6;
    return prepared;
  };
  return result;
}

}  // namespace heddle

// Cases of linear and linear_swiglu.
#include <fmt/format.h>

#include <memory>

#include "cli/bench/case_parts.h"
#include "cli/bench/operator_cases.h"

namespace heddle {
namespace {

constexpr std::int64_t kCheckedFeatures = 97;

// As the call's; numbers of a bias are those that every dtype holds, as a checkpoint's dtype holds its biases.
Weight weight_like(const Weight& of, Operands& operands) {
  Weight weight = operands.weight(of.out_features, of.in_features, of.dtype);
  if (of.bias == nullptr) return weight;
  std::vector<float> bias(static_cast<std::size_t>(of.out_features));
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(static_cast<int>(i * 7 % 17) - 8) / 64;
  weight.bias = operands.array(bias);
  weight.bias_dtype = of.bias_dtype;
  return weight;
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

// Some rows of a weight on the host, in float32, with their biases.
class SomeRows {
 public:
  SomeRows(Stream& stream, const Weight& weight, std::span<const std::int64_t> rows) : rows_(stream, weight, rows) {
    if (weight.bias == nullptr) return;
    const std::int64_t first[] = {0};
    auto* const data = const_cast<float*>(weight.bias);
    bias_ = values_of(
        HostRows(stream, Tensor{data, 1, weight.out_features, weight.out_features, DType::float32}, first), rows);
  }

  Weight weight() {
    Weight weight = rows_.weight();
    weight.bias = bias_.empty() ? nullptr : bias_.data();
    return weight;
  }

 private:
  HostRows rows_;
  std::vector<float> bias_;
};

std::string shape_text(const LinearParams& call) {
  return fmt::format("{} x {} x {}{}", call.x.rows, call.weight.out_features, call.weight.in_features,
                     call.weight.bias != nullptr ? ", bias" : "");
}

double flops_of(const LinearParams& call) {
  return 2.0 * static_cast<double>(call.x.rows) * static_cast<double>(call.weight.out_features) *
         static_cast<double>(call.weight.in_features);
}

nlohmann::json for_baseline(const LinearParams& call) {
  return {{"out_features", call.weight.out_features},
          {"in_features", call.weight.in_features},
          {"role", std::string(name_of(call.role))},
          {"bias", call.weight.bias != nullptr}};
}

}  // namespace

OperatorCase case_of(const LinearParams& call, const OperatorStep&) {
  OperatorCase result{.name = fmt::format("linear {}", name_of(call.role)),
                      .shape = shape_text(call),
                      .bytes = static_cast<double>(call.weight.size_bytes()) + bytes_of(call.x) + bytes_of(call.y),
                      .flops = flops_of(call),
                      .of_baseline = for_baseline(call),
                      .set_bytes = call.weight.size_bytes()};
  result.of_baseline["rows"] = call.x.rows;
  result.prepare = [call](Operands& operands, int sets) {
    auto all = std::make_shared<std::vector<LinearParams>>();
    LinearParams next{.x = operands.like(call.x), .y = operands.like(call.y), .role = call.role};
    const Lane lane = operands.lane(linear_workspace_bytes(operands.stream().device()));
    for (int set = 0; set < sets; ++set) {
      next.weight = weight_like(call.weight, operands);
      all->push_back(next);
    }
    PreparedOperator prepared;
    prepared.call = [all, lane](int set) { linear((*all)[static_cast<std::size_t>(set)], lane); };
    prepared.check = [all, &operands, lane] {
      const LinearParams& params = all->front();
      linear(params, lane);
      const auto tokens = sampled(params.x.rows, kCheckedTokens);
      const auto features = sampled(params.weight.out_features, kCheckedFeatures);
      HostRows x = HostRows(operands.stream(), params.x, tokens).widened();
      SomeRows weight(operands.stream(), params.weight, features);
      HostRows wanted(static_cast<std::int64_t>(tokens.size()), static_cast<std::int64_t>(features.size()),
                      DType::float32);
      on_cpu([&](Stream& cpu) { linear({.x = x.tensor(), .weight = weight.weight(), .y = wanted.tensor()}, cpu); });
      return relative_error(values_of(HostRows(operands.stream(), params.y, tokens), features), wanted.floats());
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-4;  // sums of tensor cores are a little less than float32's
    return prepared;
  };
  return result;
}

OperatorCase case_of(const LinearSwigluParams& call, const OperatorStep&) {
  const LinearParams& product = call.gate_up;
  OperatorCase result{
      .name = "linear_swiglu",
      .shape = shape_text(product),
      .bytes = static_cast<double>(product.weight.size_bytes()) + bytes_of(product.x) + bytes_of(call.y),
      .flops = flops_of(product),
      .of_baseline = for_baseline(product),
      .set_bytes = product.weight.size_bytes()};
  result.prepare = [call](Operands& operands, int sets) {
    auto all = std::make_shared<std::vector<LinearSwigluParams>>();
    LinearSwigluParams next{
        .gate_up = {.x = operands.like(call.gate_up.x), .y = operands.like(call.gate_up.y), .role = call.gate_up.role},
        .y = operands.like(call.y)};
    const Lane lane = operands.lane(linear_workspace_bytes(operands.stream().device()));
    for (int set = 0; set < sets; ++set) {
      next.gate_up.weight = weight_like(call.gate_up.weight, operands);
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
      SomeRows weight(operands.stream(), params.gate_up.weight, gate_and_up);
      const auto num_tokens = static_cast<std::int64_t>(tokens.size());
      const auto num_features = static_cast<std::int64_t>(features.size());
      HostRows gate_up(num_tokens, 2 * num_features, DType::float32), wanted(num_tokens, num_features, DType::float32);
      on_cpu([&](Stream& cpu) {
        linear_swiglu(
            {.gate_up = {.x = x.tensor(), .weight = weight.weight(), .y = gate_up.tensor()}, .y = wanted.tensor()},
            cpu);
      });
      return relative_error(values_of(HostRows(operands.stream(), params.y, tokens), features), wanted.floats());
    };
    prepared.most_error = roundings({call.y.dtype}, 2) + 1e-4;  // as linear's
    return prepared;
  };
  return result;
}

}  // namespace heddle

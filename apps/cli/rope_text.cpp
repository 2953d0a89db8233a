#include "cli/rope_text.h"

#include <fmt/format.h>

#include <variant>

namespace heddle {
namespace {

using nlohmann::ordered_json;

struct ScalingText {
  std::string operator()(std::monostate) const { return "no scaling"; }
  std::string operator()(const LinearRope& linear) const { return fmt::format("linear scaling by {}", linear.factor); }
  std::string operator()(const Llama3Rope& llama3) const {
    return fmt::format("llama3 scaling by {} from {} positions", llama3.factor, llama3.original_max_position);
  }
  std::string operator()(const YarnRope& yarn) const {
    return fmt::format("YaRN scaling by {} from {} positions", yarn.factor, yarn.original_max_position);
  }
};

struct ScalingJson {
  ordered_json operator()(std::monostate) const {
    return {{"type", "default"}, {"factor", nullptr}, {"original_context", nullptr}};
  }
  ordered_json operator()(const LinearRope& linear) const {
    return {{"type", "linear"}, {"factor", linear.factor}, {"original_context", nullptr}};
  }
  ordered_json operator()(const Llama3Rope& llama3) const {
    return {{"type", "llama3"},
            {"factor", llama3.factor},
            {"original_context", llama3.original_max_position},
            {"low_freq_factor", llama3.low_freq_factor},
            {"high_freq_factor", llama3.high_freq_factor}};
  }
  ordered_json operator()(const YarnRope& yarn) const {
    return {{"type", "yarn"},
            {"factor", yarn.factor},
            {"original_context", yarn.original_max_position},
            {"beta_fast", yarn.beta_fast},
            {"beta_slow", yarn.beta_slow},
            {"truncate", yarn.truncate},
            {"attention_factor", yarn.attention_factor}};
  }
};

}  // namespace

std::string rope_text(const RopeConfig& rope) {
  if (rope.dynamic_factor > 0)
    return fmt::format("theta {}, dynamic scaling by {}, which begins beyond the context, where texts end here",
                       rope.theta, rope.dynamic_factor);
  return fmt::format("theta {}, {}", rope.theta, std::visit(ScalingText{}, rope.scaling));
}

ordered_json rope_json(const RopeConfig& rope) {
  ordered_json object{{"theta", rope.theta}};
  object.update(std::visit(ScalingJson{}, rope.scaling));
  if (rope.dynamic_factor > 0) {
    object["type"] = "dynamic";
    object["factor"] = rope.dynamic_factor;
  }
  return object;
}

}  // namespace heddle

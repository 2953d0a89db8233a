// The router of a mixture of experts: chooses top_k of num_experts experts for each token, with weights.
//
// With the scores s of a token's logits
//   softmax   s[e] = exp(l[e] - m) / sum_e exp(l[e] - m)       (Mixtral, DeepSeek-V2)
//   sigmoid   s[e] = 1 / (1 + exp(-l[e]))                      (DeepSeek-V3)
// and c[e] = s[e] + bias[e], which only chooses (V3's correction without an auxiliary loss, "noaux_tc"):
//   groups    with num_groups > 1 only experts of the top_groups groups with the largest group score take part; a
//             group's score is its largest c (V2's group_limited_greedy), or the sum of its two largest (V3)
//   experts   the top_k experts with the largest c, largest first; of equal ones the lower index
//   weights   s of these, over their sum plus 1e-20 if `normalized`, times `scale`
// Scores are computed in float64 and rounded once; everything else is float32, in the order of the choice.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/lane.h"
#include "base/tensor.h"

namespace heddle {

inline constexpr int kMaxExperts = 512;  // limited by a thread's fixed scratch
inline constexpr int kMaxTopExperts = 16;

enum class RouterScore : std::uint8_t { softmax, sigmoid };
enum class GroupScore : std::uint8_t { largest, two_largest };

struct RouteRule {
  RouterScore score = RouterScore::softmax;
  int top_k = 1;       // 1 to kMaxTopExperts, and not above the experts of top_groups groups
  int num_groups = 1;  // divides num_experts
  int top_groups = 1;  // 1 to num_groups
  GroupScore group_score = GroupScore::largest;
  bool normalized = false;
  float scale = 1;
};

struct RouteParams {
  Tensor logits;        // [num_tokens, num_experts], float32
  const float* bias{};  // [num_experts]; null: none
  RouteRule rule;
  std::int32_t* experts{};  // [num_tokens, top_k], out
  float* weights{};         // [num_tokens, top_k], out
};

// Enqueues on the lane's stream. A row with NaN or +infinity gets experts 0 to top_k - 1 with weights of NaN. Throws
// InvalidArgument unless shapes fit.
void route(const RouteParams& params, const Lane& lane);

// The checks of route() of these: throws InvalidArgument that names `op`.
void require_rule(const Tensor& logits, const RouteRule& rule, std::string_view op);

}  // namespace heddle

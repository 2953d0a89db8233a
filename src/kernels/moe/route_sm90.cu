// A warp takes a token (route_sm90.cuh).
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/moe/route_sm90.cuh"
#include "kernels/moe/route_sm90.h"

namespace heddle {
namespace {

constexpr int kRouteWarps = 4;

__global__ void __launch_bounds__(kRouteWarps * 32) route_tokens(const __grid_constant__ RouteParams params) {
  __shared__ float all_choices[kRouteWarps][kMaxExperts], all_groups[kRouteWarps][kMaxExperts];
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / 32, top_k = params.rule.top_k;
  const RouteScratch scratch{.choice = all_choices[warp], .groups = all_groups[warp]};
  for (std::int64_t token = std::int64_t{blockIdx.x} * kRouteWarps + warp; token < params.logits.rows;
       token += std::int64_t{gridDim.x} * kRouteWarps)
    route_row<kMaxExperts>(static_cast<const float*>(params.logits.data) + token * params.logits.row_stride,
                           params.bias, static_cast<int>(params.logits.columns), params.rule, scratch,
                           [&](int k, int expert, float weight) {
                             params.experts[token * top_k + k] = expert;
                             params.weights[token * top_k + k] = weight;
                           });
}

}  // namespace

void route_sm90(const RouteParams& params, const Lane& lane) {
  launch_sm90("route", route_tokens,
              {.grid = dim3(static_cast<unsigned>(ceil_div<std::int64_t>(params.logits.rows, kRouteWarps))),
               .block = kRouteWarps * 32,
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace heddle

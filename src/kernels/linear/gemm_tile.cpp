#include "kernels/linear/gemm_tile.h"

#include "kernels/linear/linear_sm90_large.h"
#include "kernels/linear/linear_tiles.h"

namespace heddle {
namespace {

constexpr GemmTile kUnknownTile{.tokens = 128, .features = 128};
constexpr GemmTile kSwigluTile{.tokens = 256, .features = 256};  // of a cluster (linear_swiglu_sm90.cu)

}  // namespace

GemmTile gemm_tile(const LinearParams& params, const Lane& lane) {
  if (lane.stream.device().kind == DeviceKind::cpu) return {.tokens = kTileRows, .features = kTileRows};
  if constexpr (kHaveCuda)
    if (params.x.rows > kLinearSmallRows && is_for_cublas_lt(params))
      return large_tile({.params = params, .bias = nullptr, .workspace = lane.workspace}, lane);
  return kUnknownTile;
}

GemmTile gemm_tile(const LinearSwigluParams& params, const Lane& lane) {
  return is_fused(params, lane.stream.device()) ? kSwigluTile : gemm_tile(params.gate_up, lane);
}

}  // namespace heddle

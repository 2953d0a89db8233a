// How linear_sm90_batch.cuh is launched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/per_device.h"
#include "kernels/linear/linear_sm90_batch.cuh"
#include "kernels/linear/linear_sm90_batch.h"

namespace heddle {

// Clusters that run at a time: a GPU's parts may hold fewer than SMs / kCluster.
template <class Config, class T>
int batch_teams(const LaunchShape& shape, const Lane& lane) {
  if constexpr (Config::kCluster == 1) return lane.num_sms;
  static PerDevice<int> of_device;
  const Device device = lane.stream.device();
  const int most = of_device.get(device, [&] {
    return clusters_of_device("linear", reinterpret_cast<const void*>(linear_batch<Config, T>), shape, device);
  });
  require(most > 0, "linear: {} has no clusters of {} blocks", name_of(device), Config::kCluster);
  return std::clamp(lane.num_sms / Config::kCluster, 1, most);
}

inline CUtensorMap batch_map(const Tensor& matrix, int box_rows, CUtensorMapL2promotion promotion) {
  return sm90::tensor_map("linear", {.data = matrix.data,
                                     .rows = static_cast<std::uint64_t>(matrix.rows),
                                     .columns = static_cast<std::uint64_t>(matrix.columns),
                                     .row_stride = static_cast<std::uint64_t>(matrix.row_stride),
                                     .box_rows = static_cast<std::uint32_t>(box_rows),
                                     .box_columns = 64,
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                     .promotion = promotion});
}

template <class Config, class T>
void enqueue_batch_of(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  LaunchShape shape{.grid = dim3(1),
                    .block = dim3(Config::kThreads),
                    .shared_bytes = Config::kSharedBytes,
                    .cluster = unsigned{Config::kCluster}};
  const Weight& weight = params.weight;
  const int outputs = narrow<int>(weight.out_features / Config::kParts, "outputs");
  const int teams = batch_teams<Config, T>(shape, lane);
  // Tiles are those of the whole device: on a lane with part of it, a block has more of them, and no bit changes.
  const BatchTiles tiles =
      BatchTiles::of(outputs, Config::kPartRows, num_sms_of(lane.stream.device()) / Config::kCluster);
  shape.grid = dim3(static_cast<unsigned>(std::min(teams, tiles.count) * Config::kCluster));
  const Tensor w{const_cast<void*>(weight.row(0)), weight.out_features, weight.in_features, weight.in_features,
                 weight.dtype};
  // A wider promotion fetches lines that the next box asks for again.
  constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  const BatchMaps maps{
      .tokens = batch_map(params.x, Config::kTokens, kPromotion),
      .weights = batch_map(w, BatchTiles::kGroup * tiles.groups, kPromotion),
      .longer_weights = batch_map(w, std::min(BatchTiles::kGroup * (tiles.groups + 1), Config::kPartRows), kPromotion)};
  const int part_bytes = (tiles.longer > 0 ? tiles.groups + 1 : tiles.groups) * BatchTiles::kGroup * Config::kLineBytes;
  const int slot_bytes = Config::kLines * Config::kParts * part_bytes;
  const int slots = std::min(Config::kRingBytes / slot_bytes, Config::kMostSlots);
  const BatchOperands op{.bias = weight.bias,
                         .y = params.y.data,
                         .y_stride = params.y.row_stride,
                         .num_tokens = static_cast<int>(params.x.rows),
                         .steps = static_cast<int>(ceil_div<std::int64_t>(weight.in_features, Config::kStepFeatures)),
                         .steps_apart = plan.steps_apart,
                         .tiles = tiles,
                         .ring = {.slots = slots,
                                  .part_bytes = part_bytes,
                                  .slot_bytes = slot_bytes,
                                  .slots_ahead = std::clamp(plan.bytes_ahead / slot_bytes, 1, slots)},
                         .y_is_float = params.y.dtype == DType::float32,
                         .y_takes_fours = params.y.dtype != DType::float32 && outputs % 4 == 0 &&
                                          params.y.row_stride % 4 == 0 && is_aligned(params.y.data, 8)};
  launch_sm90("linear", linear_batch<Config, T>, shape, lane, op, maps, waits_of(lane.stream, "linear"));
}

// Columns of the right operand that hold no token cost no traffic, and up to 32 of them WGMMA waits for its left
// operand.
template <StreamOutput kOutput, int kGroups, int kTilesOfGroup, int kCluster, class T>
void enqueue_batch(const LinearParams& params, const BatchPlan& plan, const Lane& lane) {
  if (params.x.rows <= 32)
    return enqueue_batch_of<BatchConfig<kOutput, 32, kGroups, kTilesOfGroup, kCluster>, T>(params, plan, lane);
  enqueue_batch_of<BatchConfig<kOutput, 64, kGroups, kTilesOfGroup, kCluster>, T>(params, plan, lane);
}

}  // namespace heddle

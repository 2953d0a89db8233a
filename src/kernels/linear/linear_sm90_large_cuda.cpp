#include "kernels/linear/linear_sm90_large.h"

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda_call.h"
#include "base/cuda_runtime.h"
#include "device/free_cluster.h"
#include "kernels/linear/cublas_lt.h"

namespace heddle {
namespace {

// What cuBLASLt's choice depends on.
struct GemmKey {
  int device;
  DType dtype, y_dtype;
  bool has_bias;
  std::int64_t num_tokens, out_features, in_features, x_stride, y_stride;
  std::array<std::uint32_t, 3> alignment;  // of W, x and y: the largest power of two, up to 256
  std::size_t workspace_bytes;
  LinearRole role;
  int num_sms;  // of a lane with part of the device; 0: the whole device

  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

std::uint32_t alignment_of(const void* data) {
  return std::uint32_t{1} << std::min(8, std::countr_zero(reinterpret_cast<std::uintptr_t>(data)));
}

GemmKey key_of(const LargeGemm& gemm, const Lane& lane) {
  const LinearParams& p = gemm.params;
  return {.device = lane.stream.device().index,
          .dtype = p.weight.dtype,
          .y_dtype = p.y.dtype,
          .has_bias = gemm.bias != nullptr,
          .num_tokens = p.x.rows,
          .out_features = p.weight.out_features,
          .in_features = p.weight.in_features,
          .x_stride = p.x.row_stride,
          .y_stride = p.y.row_stride,
          .alignment = {alignment_of(p.weight.row(0)), alignment_of(p.x.data), alignment_of(p.y.data)},
          .workspace_bytes = gemm.workspace.size_bytes,
          .role = p.role,
          .num_sms = lane.num_other_sms() == 0 ? 0 : lane.num_sms};
}

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::float32 ? CUDA_R_32F : dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

Owned<cublasLtMatrixLayout_t> layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas_lt(cublas_lt().matrix_layout_create(&made, cuda_type(dtype), static_cast<std::uint64_t>(rows),
                                                   static_cast<std::uint64_t>(columns), stride),
                  "cublasLtMatrixLayoutCreate");
  return {made, cublas_lt().matrix_layout_destroy};
}

// Prefill runs an H200 at its power limit. There, tiles of 168 or 176 by 128 take 4 to 8 % less time than cuBLASLt's
// first choice (docs/notes/linear_gpu.md), wherever it offers them for a GEMM with out_features > in_features: these
// roles.
bool wants_frugal_tiles(const GemmKey& key) {
  const bool is_wide = key.role == LinearRole::qkv || key.role == LinearRole::gate_up || key.role == LinearRole::logits;
  return is_wide && key.dtype != DType::float32 && key.num_tokens >= 1024;
}
bool has_frugal_tiles(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  std::size_t written = 0;
  const cublasStatus_t status = cublas_lt().matmul_algo_config_get_attribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID,
                                                                             &tile, sizeof tile, &written);
  return status == CUBLAS_STATUS_SUCCESS &&
         (tile == CUBLASLT_MATMUL_TILE_168x128 || tile == CUBLASLT_MATMUL_TILE_176x128);
}

// cuBLASLt computes y^T, so its rows are features.
GemmTile tile_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  std::size_t written = 0;
  cublas_lt().matmul_algo_config_get_attribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
  switch (tile) {
    case CUBLASLT_MATMUL_TILE_64x64:
      return {.tokens = 64, .features = 64};
    case CUBLASLT_MATMUL_TILE_64x128:
      return {.tokens = 128, .features = 64};
    case CUBLASLT_MATMUL_TILE_128x64:
      return {.tokens = 64, .features = 128};
    case CUBLASLT_MATMUL_TILE_64x256:
      return {.tokens = 256, .features = 64};
    case CUBLASLT_MATMUL_TILE_256x64:
      return {.tokens = 64, .features = 256};
    case CUBLASLT_MATMUL_TILE_128x256:
      return {.tokens = 256, .features = 128};
    case CUBLASLT_MATMUL_TILE_256x128:
      return {.tokens = 128, .features = 256};
    case CUBLASLT_MATMUL_TILE_192x128:
      return {.tokens = 128, .features = 192};
    case CUBLASLT_MATMUL_TILE_168x128:
      return {.tokens = 128, .features = 168};
    case CUBLASLT_MATMUL_TILE_176x128:
      return {.tokens = 128, .features = 176};
    default:
      return {.tokens = 128, .features = 128};
  }
}

bool has_no_clusters(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint16_t shape = CUBLASLT_CLUSTER_SHAPE_AUTO;
  std::size_t written = 0;
  const cublasStatus_t status = cublas_lt().matmul_algo_config_get_attribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &shape, sizeof shape, &written);
  return status != CUBLAS_STATUS_SUCCESS || shape == CUBLASLT_CLUSTER_SHAPE_AUTO ||
         shape == CUBLASLT_CLUSTER_SHAPE_1x1x1;
}

// A GEMM as cuBLASLt describes it. cuBLASLt is column-major, so it computes y^T = W x^T.
class GemmDescription {
 public:
  explicit GemmDescription(const GemmKey& key)
      : weight_(layout(key.dtype, key.in_features, key.out_features, key.in_features)),
        x_(layout(key.dtype, key.in_features, key.num_tokens, key.x_stride)),
        y_(layout(key.y_dtype, key.out_features, key.num_tokens, key.y_stride)),
        workspace_bytes_(key.workspace_bytes),
        gemm_(nullptr, cublas_lt().matmul_desc_destroy) {
    cublasLtMatmulDesc_t made = nullptr;
    check_cublas_lt(cublas_lt().matmul_desc_create(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    gemm_.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (key.num_sms > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{key.num_sms});
    if (!key.has_bias) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(key.y_dtype));
  }

  // The algorithm that is expected to be fastest: cuBLASLt's first choice, or a measured better one.
  cublasLtMatmulAlgo_t fastest_algorithm(const GemmKey& key, cublasLtHandle_t handle) const {
    constexpr int kCandidates = 8;
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas_lt(cublas_lt().matmul_preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t> preference{made, cublas_lt().matmul_preference_destroy};
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_cublas_lt(cublas_lt().matmul_preference_set_attribute(made, attribute, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{key.workspace_bytes});
    // Split-K may reduce in float32 only, in a fixed order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results;
    int found = 0;
    const cublasStatus_t status = cublas_lt().matmul_algo_get_heuristic(
        handle, gemm_.get(), weight_.get(), x_.get(), y_.get(), y_.get(), made, kCandidates, results.data(), &found);
    std::vector<cublasLtMatmulAlgo_t> candidates;
    for (int i = 0; i < found; ++i)
      if (results[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
        candidates.push_back(results[static_cast<std::size_t>(i)].algo);
    if (candidates.empty())
      throw_error<Failure>("cuBLASLt: has no algorithm to multiply [{}, {}] by [{}, {}]^T of {} (status {})",
                           key.num_tokens, key.in_features, key.out_features, key.in_features, name_of(key.dtype),
                           static_cast<int>(status));
    if (key.num_sms > 0) return with_small_clusters(candidates, key, handle);
    if (wants_frugal_tiles(key)) {
      const auto frugal = std::ranges::find_if(candidates, has_frugal_tiles);
      if (frugal != candidates.end()) return *frugal;
    }
    return candidates.front();
  }

  cublasStatus_t run(const LargeGemm& gemm, const cublasLtMatmulAlgo_t& algorithm, cublasLtHandle_t handle,
                     const Stream& stream) const {
    if (gemm.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm.bias);
    const float one = 1, zero = 0;
    const LinearParams& p = gemm.params;
    return cublas_lt().matmul(handle, gemm_.get(), &one, p.weight.row(0), weight_.get(), p.x.data, x_.get(), &zero,
                              p.y.data, y_.get(), p.y.data, y_.get(), &algorithm, gemm.workspace.data,
                              gemm.workspace.size_bytes, static_cast<cudaStream_t>(stream.native()));
  }

 private:
  // The first candidate with clusters that fit on a few SMs. cuBLASLt mostly offers clusters of 8, which could wait
  // until the other SMs are free, but its kernels for Hopper take smaller ones. Older kernels, which it has for odd
  // sizes, take no shape of clusters, because they have none. They ignore the target of SMs (linear.h), but our plain
  // kernel, which would not, takes many times as long. Throws Failure where every kernel needs larger clusters.
  cublasLtMatmulAlgo_t with_small_clusters(const std::vector<cublasLtMatmulAlgo_t>& candidates, const GemmKey& key,
                                           cublasLtHandle_t handle) const {
    const auto pairs = hold_a_pair(key.num_sms) ? CUBLASLT_CLUSTER_SHAPE_2x1x1 : CUBLASLT_CLUSTER_SHAPE_1x1x1;
    for (const auto shape : {pairs, CUBLASLT_CLUSTER_SHAPE_1x1x1})
      for (cublasLtMatmulAlgo_t algorithm : candidates)
        if (takes_clusters(algorithm, static_cast<std::uint16_t>(shape), handle)) return algorithm;
    const auto without = std::ranges::find_if(candidates, has_no_clusters);
    if (without == candidates.end())
      throw_error<Failure>("cuBLASLt: has no algorithm for {} SMs to multiply [{}, {}] by [{}, {}]^T of {}",
                           key.num_sms, key.num_tokens, key.in_features, key.out_features, key.in_features,
                           name_of(key.dtype));
    return *without;
  }

  // Gives `algorithm` this shape of clusters; false where its kernel does not work with it.
  bool takes_clusters(cublasLtMatmulAlgo_t& algorithm, std::uint16_t shape, cublasLtHandle_t handle) const {
    if (cublas_lt().matmul_algo_config_set_attribute(&algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &shape,
                                                     sizeof shape) != CUBLAS_STATUS_SUCCESS)
      return false;
    cublasLtMatmulHeuristicResult_t result{};
    return cublas_lt().matmul_algo_check(handle, gemm_.get(), weight_.get(), x_.get(), y_.get(), y_.get(), &algorithm,
                                         &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_bytes_;
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) const {
    check_cublas_lt(cublas_lt().matmul_desc_set_attribute(gemm_.get(), attribute, &value, sizeof value),
                    "cublasLtMatmulDescSetAttribute");
  }

  Owned<cublasLtMatrixLayout_t> weight_, x_, y_;
  std::size_t workspace_bytes_;
  Owned<cublasLtMatmulDesc_t> gemm_;
};

// How to run a GEMM: cuBLASLt's algorithm and its handle of the device.
struct GemmAlgorithm {
  cublasLtHandle_t handle;
  cublasLtMatmulAlgo_t algorithm;
};

// Caches cuBLASLt's answers for this process. The lock is held during a query, not while a GEMM is enqueued, so ranks
// of one process do not serialize on it.
class AlgorithmCache {
 public:
  // For the current device.
  GemmAlgorithm find(const GemmKey& key, const GemmDescription& description) {
    const std::scoped_lock lock(mutex_);
    cublasLtHandle_t& handle = handles_[key.device];
    if (handle == nullptr) check_cublas_lt(cublas_lt().create(&handle), "cublasLtCreate");
    if (const auto found = algorithms_.find(key); found != algorithms_.end()) return {handle, found->second};
    const cublasLtMatmulAlgo_t fastest = description.fastest_algorithm(key, handle);
    if (algorithms_.size() >= kMost) algorithms_.clear();  // a server sees every number of tokens in time
    algorithms_.emplace(key, fastest);
    return {handle, fastest};
  }

 private:
  static constexpr std::size_t kMost = 4096;  // under a megabyte

  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;  // by device
  std::map<GemmKey, cublasLtMatmulAlgo_t> algorithms_;
};

// Never destroyed: the driver may be gone before statics are.
AlgorithmCache& algorithm_cache() {
  static AlgorithmCache& made = *new AlgorithmCache;
  return made;
}

}  // namespace

bool is_for_cublas_lt(const LinearParams& params) {
  return params.x.dtype == params.weight.dtype &&
         (params.y.dtype == params.weight.dtype || params.y.dtype == DType::float32);
}

GemmTile large_tile(const LargeGemm& gemm, const Lane& lane) {
  const CurrentDevice current(lane.stream.device().index);
  const GemmKey key = key_of(gemm, lane);
  const GemmDescription description(key);
  return tile_of(algorithm_cache().find(key, description).algorithm);
}

void linear_large(const LargeGemm& gemm, const Lane& lane) {
  const CurrentDevice current(lane.stream.device().index);
  const GemmKey key = key_of(gemm, lane);
  const GemmDescription description(key);
  const GemmAlgorithm found = algorithm_cache().find(key, description);
  check_cublas_lt(description.run(gemm, found.algorithm, found.handle, lane.stream), "cublasLtMatmul");
}

}  // namespace heddle

#include "kernels/linear/cublas_lt.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "base/shared_library.h"

namespace heddle {
namespace {

CublasLt load_cublas_lt() {
  const std::string file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  // CUDA's own folder is often in no search path.
  const SharedLibrary library(fmt::format("cuBLASLt {} of CUDA", CUBLAS_VER_MAJOR),
                              {file, "/usr/local/cuda/lib64/" + file});
  CublasLt lt;
  library.find("cublasLtCreate", lt.create);
  library.find("cublasLtMatmul", lt.matmul);
  library.find("cublasLtMatmulDescCreate", lt.matmul_desc_create);
  library.find("cublasLtMatmulDescDestroy", lt.matmul_desc_destroy);
  library.find("cublasLtMatmulDescSetAttribute", lt.matmul_desc_set_attribute);
  library.find("cublasLtMatrixLayoutCreate", lt.matrix_layout_create);
  library.find("cublasLtMatrixLayoutDestroy", lt.matrix_layout_destroy);
  library.find("cublasLtMatmulPreferenceCreate", lt.matmul_preference_create);
  library.find("cublasLtMatmulPreferenceDestroy", lt.matmul_preference_destroy);
  library.find("cublasLtMatmulPreferenceSetAttribute", lt.matmul_preference_set_attribute);
  library.find("cublasLtMatmulAlgoGetHeuristic", lt.matmul_algo_get_heuristic);
  library.find("cublasLtMatmulAlgoConfigGetAttribute", lt.matmul_algo_config_get_attribute);
  library.find("cublasLtMatmulAlgoConfigSetAttribute", lt.matmul_algo_config_set_attribute);
  library.find("cublasLtMatmulAlgoCheck", lt.matmul_algo_check);
  return lt;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt library = load_cublas_lt();  // loaded again by the next call if this throws
  return library;
}

void check_cublas_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_error<Failure>("cuBLASLt: {}: status {}", call, static_cast<int>(status));
}

}  // namespace heddle

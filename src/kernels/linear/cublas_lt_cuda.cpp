#include "kernels/linear/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "base/error.h"

namespace heddle {
namespace {

template <class Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw_error<Failure>("cuBLASLt: the library has no {}", name);
}

CublasLt load_cublas_lt() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string why;
  if (library == nullptr) {
    why = dlerror();
    library = dlopen(("/usr/local/cuda/lib64/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);  // often in no search path
  }
  if (library == nullptr)
    throw_error<Failure>("cuBLASLt {} of CUDA is needed and was not found ({}): put its folder into LD_LIBRARY_PATH",
                         CUBLAS_VER_MAJOR, why);
  CublasLt lt;
  find_function(library, "cublasLtCreate", lt.create);
  find_function(library, "cublasLtMatmul", lt.matmul);
  find_function(library, "cublasLtMatmulDescCreate", lt.matmul_desc_create);
  find_function(library, "cublasLtMatmulDescDestroy", lt.matmul_desc_destroy);
  find_function(library, "cublasLtMatmulDescSetAttribute", lt.matmul_desc_set_attribute);
  find_function(library, "cublasLtMatrixLayoutCreate", lt.matrix_layout_create);
  find_function(library, "cublasLtMatrixLayoutDestroy", lt.matrix_layout_destroy);
  find_function(library, "cublasLtMatmulPreferenceCreate", lt.matmul_preference_create);
  find_function(library, "cublasLtMatmulPreferenceDestroy", lt.matmul_preference_destroy);
  find_function(library, "cublasLtMatmulPreferenceSetAttribute", lt.matmul_preference_set_attribute);
  find_function(library, "cublasLtMatmulAlgoGetHeuristic", lt.matmul_algo_get_heuristic);
  find_function(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.matmul_algo_config_get_attribute);
  find_function(library, "cublasLtMatmulAlgoConfigSetAttribute", lt.matmul_algo_config_set_attribute);
  find_function(library, "cublasLtMatmulAlgoCheck", lt.matmul_algo_check);
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

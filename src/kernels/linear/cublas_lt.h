// cuBLASLt, loaded by the first call that needs it: a program with CUDA support starts without the library. Includes
// cuBLASLt's header, so only sources of this folder that are built with CUDA include it.
#pragma once

#include <cublasLt.h>

namespace heddle {

// cuBLASLt's functions under their own names without the prefix.
struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&::cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&::cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) matrix_layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) matmul_preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) matmul_preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) matmul_algo_config_get_attribute;
  decltype(&::cublasLtMatmulAlgoConfigSetAttribute) matmul_algo_config_set_attribute;
  decltype(&::cublasLtMatmulAlgoCheck) matmul_algo_check;
};

// Loads the library on the first call. Throws Failure when there is none of this build's major version.
const CublasLt& cublas_lt();

// Throws Failure that names `call` and the status, unless the status is success.
void check_cublas_lt(cublasStatus_t status, const char* call);

}  // namespace heddle

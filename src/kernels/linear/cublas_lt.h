// cuBLASLt, loaded when it is first wanted: a program with the CUDA side starts without it, and says plainly when it is
// not there. Includes cuBLASLt's header; for sources of this folder that are built with CUDA.
#pragma once

#include <cublasLt.h>

namespace heddle {

// cuBLASLt's functions by their own names, less the prefix.
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

// The library of this process, loaded by the first call. Throws Failure when there is none of this build's major
// version.
const CublasLt& cublas_lt();

// Throws Failure that names `call` and the status, unless that is success.
void check_cublas_lt(cublasStatus_t status, const char* call);

}  // namespace heddle

// Marks a function that runs on the host and in kernels. Empty outside the CUDA compiler.
#pragma once

#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HEDDLE_HOST_DEVICE inline
#endif

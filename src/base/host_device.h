// Marks a function that runs on the host and in kernels alike. Where the CUDA compiler does not look, it says nothing.
#pragma once

#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HEDDLE_HOST_DEVICE inline
#endif

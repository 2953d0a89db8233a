// Marks a function of the host and of kernels that is never inlined: rare work, whose code would lie between that of the work
// that always runs. Arguments by value: a reference would move its object to memory.
#pragma once

#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE_APART inline __host__ __device__ __noinline__
#else
#define HEDDLE_HOST_DEVICE_APART [[gnu::noinline]] inline
#endif

// In builds without CUDA, or whose CUDA has no CUPTI headers.
#include "base/error.h"
#include "base/gpu_activity.h"

namespace heddle {

GpuActivity::GpuActivity() {
  throw Failure("this build has no CUPTI, whose headers come with the CUDA toolkit");
}
GpuActivity::~GpuActivity() = default;

GpuRecords GpuActivity::collect() {
  return {};
}

}  // namespace heddle

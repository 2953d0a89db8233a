#include "kernels/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu_target.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

CpuTarget describe_target() {
  return {.name = hwy::TargetName(HWY_TARGET), .vector_lanes = kWidth, .fused_multiply_add = HWY_NATIVE_FMA != 0};
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

HWY_EXPORT(describe_target);

CpuTarget cpu_target() {
  return HWY_DYNAMIC_DISPATCH(describe_target)();
}

}  // namespace heddle
#endif

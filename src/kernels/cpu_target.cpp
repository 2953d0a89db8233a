#include "kernels/cpu_target.h"

#include "kernels/linear/linear_amx.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu_target.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/cpu/lanes-inl.h"

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
  CpuTarget target = HWY_DYNAMIC_DISPATCH(describe_target)();
  target.bfloat16_tiles =
      target.name == "AVX3" && linear_rows_amx() != nullptr;  // AVX3, for no test has chosen another
  return target;
}

std::string describe(const CpuTarget& target) {
  return std::string(target.name) + (target.bfloat16_tiles ? " with AMX" : "");
}

}  // namespace heddle
#endif

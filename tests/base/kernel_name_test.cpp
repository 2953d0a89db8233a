#include <gtest/gtest.h>

#include "base/gpu_activity.h"

namespace heddle {
namespace {

TEST(ShortKernelName, LeavesOutReturnTypeParametersAndNamespaces) {
  EXPECT_EQ(short_kernel_name("void heddle::(anonymous namespace)::run_norm<heddle::DirectNormKernel<heddle::bfloat16, "
                              "heddle::bfloat16, 4> >(heddle::Peers, heddle::AllReduceNormMemory)"),
            "run_norm<DirectNormKernel<bfloat16, bfloat16, 4> >");
  EXPECT_EQ(short_kernel_name("heddle::(anonymous namespace)::barrier_kernel(heddle::BarrierBody)"), "barrier_kernel");
  EXPECT_EQ(short_kernel_name("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT"),
            "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT");
}

TEST(ShortKernelName, KeepsParenthesesOfTemplateArguments) {
  EXPECT_EQ(short_kernel_name("void tile_kernel<(int)4, (bool)1>(float*)"), "tile_kernel<(int)4, (bool)1>");
}

}  // namespace
}  // namespace heddle

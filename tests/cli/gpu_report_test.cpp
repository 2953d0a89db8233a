#include "cli/gpu_report.h"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

GpuEntry kernel(const char* name, std::int64_t begin, std::int64_t end, std::int64_t waited = 0) {
  return {.name = name, .begin = begin, .end = end, .blocks = 4, .waits = {}, .waited = waited};
}

void expect_sum(const GpuShares& shares) {
  EXPECT_NEAR(shares.compute + shares.transfer + shares.synchronous + shares.idle, shares.seconds,
              1e-6 * shares.seconds);
}

// GPU 0 computes on one stream and sums on another; GPU 1 only waits for its peer in a sum.
std::vector<GpuTrack> two_gpus() {
  return {{0, 7, {kernel("gemm", 1000, 3000), kernel("attention", 2900, 4000), kernel("gemm", 6000, 7000)}},
          {0, 9, {kernel("run_norm<DirectNormKernel<bfloat16, bfloat16, 4> >", 3500, 5000)}},
          {1, 7, {kernel("run_collective<AllReduce>", 0, 500)}}};
}

TEST(GpuShares, AddUpToTheTimeFromTheFirstKernelToTheLast) {
  const std::vector<GpuShares> shares = gpu_shares(two_gpus());
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].device, 0);
  EXPECT_EQ(shares[0].kernels, 4);
  EXPECT_DOUBLE_EQ(shares[0].seconds, 6000e-9);
  EXPECT_DOUBLE_EQ(shares[0].compute, 4000e-9);         // 1000 to 4000, 6000 to 7000
  EXPECT_DOUBLE_EQ(shares[0].transfer, 1000e-9);        // 4000 to 5000
  EXPECT_DOUBLE_EQ(shares[0].idle, 1000e-9);            // 5000 to 6000
  EXPECT_DOUBLE_EQ(shares[0].hidden_transfer, 500e-9);  // 3500 to 4000
  EXPECT_DOUBLE_EQ(shares[1].transfer, shares[1].seconds);
  expect_sum(shares[0]);
}

// Blocks of a GEMM that gathers waited a quarter of its time; those of a sum, half of it, while the GEMM ran and after.
TEST(GpuShares, CountWhatBlocksWaitedAsTheBulkSynchronousTaxUnlessAnotherKernelWorks) {
  const std::vector<GpuShares> shares =
      gpu_shares({{0, 7, {kernel("tile_gemm", 0, 4000, 1000)}},
                  {0, 9, {kernel("run_norm", 3000, 5000, 1000), kernel("run_collective", 7000, 7000)}}});
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_NEAR(shares[0].compute, 3000e-9, 1e-12);           // 3/4 of 0 to 4000
  EXPECT_NEAR(shares[0].transfer, 250e-9 + 500e-9, 1e-12);  // beside the GEMM, the quarter that it waits; alone, half
  EXPECT_NEAR(shares[0].synchronous, 750e-9 + 500e-9, 1e-12);  // 1/4 of 0 to 3000, half of 4000 to 5000
  EXPECT_NEAR(shares[0].idle, 2000e-9, 1e-12);
  EXPECT_NEAR(shares[0].hidden_transfer, 250e-9, 1e-12);
  expect_sum(shares[0]);
}

TEST(GpuShares, OfNothingAreNone) {
  EXPECT_TRUE(gpu_shares({}).empty());
  EXPECT_TRUE(kernel_times({}).empty());
  EXPECT_TRUE(wait_times({}).empty());
}

TEST(KernelTimes, AreByNameTheLongestFirst) {
  const std::vector<KernelTime> times = kernel_times(two_gpus());
  ASSERT_EQ(times.size(), 4u);
  EXPECT_EQ(times[0].name, "gemm");
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_DOUBLE_EQ(times[0].seconds, 3000e-9);
  EXPECT_EQ(times[3].device, 1);
}

TEST(TransferKernels, AreThoseThatMoveRowsBetweenRanks) {
  EXPECT_TRUE(is_transfer_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"));
  EXPECT_TRUE(is_transfer_kernel("copy between GPUs"));
  EXPECT_TRUE(is_transfer_kernel(short_kernel_name("heddle::nvlink::(anonymous namespace)::wait_kernel(int)")))
      << "a stream that waits for a peer";
  EXPECT_TRUE(
      is_transfer_kernel(short_kernel_name("void heddle::run_body<heddle::staged::Wait>(heddle::staged::Wait)")));
  EXPECT_FALSE(is_transfer_kernel("copy"));
  EXPECT_FALSE(is_transfer_kernel("partial_tiles_kernel<bfloat16>")) << "a GEMM that sums while it multiplies";
}

}  // namespace
}  // namespace heddle

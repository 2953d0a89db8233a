#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/registry.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kGiB = std::size_t{1} << 30;

std::unique_ptr<Model> outline(const char* name) {
  return outline_model(SyntheticModel(*parse_synthetic_name(name)), {.device = {DeviceKind::cuda, 0}});
}

TEST(MemoryPlan, CountsWeightsAndGivesTheCacheWhatIsLeft) {
  const auto model = outline("synth:llama-3-8b");
  const MemoryPlan plan = plan_memory(*model, {}, 40 * kGiB);
  EXPECT_NEAR(static_cast<double>(plan.weights), 16.06e9, 0.05e9);
  EXPECT_GT(plan.step, 0u);
  EXPECT_LE(plan.total(), plan.available);
  EXPECT_GT(plan.total(), plan.available - 4 * kGiB);
  EXPECT_EQ(plan.cache_tokens % 64, 0);
  EXPECT_EQ(why_too_large(plan), "");
  // One sequence of the model's context: a larger cache would be useless.
  EXPECT_EQ(plan_memory(*model, {.max_sequences = 1}, 100 * kGiB).cache_tokens, 8192);
}

TEST(MemoryPlan, SaysWhatIsMissingAndWhatWouldFit) {
  const auto model = outline("synth:llama-3-8b");
  const std::string weights = why_too_large(plan_memory(*model, {}, 12 * kGiB));
  EXPECT_THAT(weights, HasSubstr("GiB are missing"));
  EXPECT_THAT(weights, HasSubstr("15.0 GiB of weights"));
  EXPECT_THAT(weights, HasSubstr("a smaller model, or weights of fewer bits"));
  const std::string cache = why_too_large(plan_memory(*model, {.kv_bytes = std::int64_t{30} << 30}, 40 * kGiB));
  EXPECT_THAT(cache, HasSubstr("beside these weights, keys and values of"));
  EXPECT_THAT(cache, ::testing::Not(HasSubstr("\n")));
}

TEST(MemoryPlan, AnOutlineTakesNoMemory) {
  EXPECT_GT(outline("synth:llama-3.3-70b")->shape().weight_bytes, 130 * kGiB);
}

}  // namespace
}  // namespace heddle

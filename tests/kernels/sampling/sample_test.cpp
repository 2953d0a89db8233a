#include "sample_cases.h"

namespace heddle {
namespace {

// That tokens are drawn from the right distribution is tested where the engine's sampler is (tests/engine).

TEST(Sample, GivesEachRowWhatItGivesAlone) {
  const SampleRows rows = random_rows(300, 60, 1);
  const std::vector<std::int32_t> tokens = sampled_on_cpu(rows, 4);
  std::vector<SampleCandidate> scratch(300);
  int unsound = 0;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    const float* logits = rows.logits.row(static_cast<std::int64_t>(r));
    if (argmax_of(logits, 300) == kUnsoundRow) {
      EXPECT_EQ(tokens[r], kUnsoundRow);
      ++unsound;
    } else {
      EXPECT_EQ(tokens[r], sample_of({logits, 300}, rows.rows[r], scratch)) << r;
    }
  }
  EXPECT_GT(unsound, 0);
}

TEST(Sample, IgnoresAHistoryOutsideTheVocabulary) {
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<HistoryToken> history = {{-1, 1, 50}, {3, 1, 50}, {2, 5}};
  std::vector<SampleCandidate> scratch(3);
  const SampleRow row{.presence_penalty = 1.5, .history = history.data(), .num_history = 3};
  EXPECT_EQ(sample_of(logits, row, scratch), 1);
}

TEST(Sample, ABiasIsAddedBehindThePenaltiesAndWithoutThem) {
  const std::vector<float> logits = {4, 3.5, 0};
  std::vector<SampleCandidate> scratch(3);
  const auto token = [&](const HistoryToken& history, double repetition_penalty) {
    return sample_of(logits, {.repetition_penalty = repetition_penalty, .history = &history, .num_history = 1},
                     scratch);
  };
  EXPECT_EQ(token({.id = 0, .bias = 2}, 2), 0) << "4 / 2 + 2";
  EXPECT_EQ(token({.id = 0, .bias = 1}, 2), 1) << "4 / 2 + 1";
  EXPECT_EQ(token({.id = 0, .count = HistoryToken::kUnseen, .bias = -0.25}, 2), 0) << "4 - 0.25";
  EXPECT_EQ(token({.id = 2, .count = HistoryToken::kUnseen, .bias = 100}, 1), 2);
  EXPECT_EQ(token({.id = 0, .count = HistoryToken::kUnseen, .bias = -100}, 1), 1);
}

TEST(Sample, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const SampleRows rows = random_rows(10, 2, 1);
  std::vector<SampleCandidate> scratch(20);
  std::int32_t tokens[2];
  const SampleParams good{.logits = rows.logits, .rows = rows.rows.data(), .tokens = tokens, .scratch = scratch.data()};
  const auto broken = [&](auto change, const std::string& part) {
    SampleParams params = good;
    change(params);
    expect_invalid([&] { sample(params, stream); }, part);
  };
  sample(good, stream);
  broken([](SampleParams& p) { p.rows = nullptr; }, "sample: rows is null");
  broken([](SampleParams& p) { p.tokens = nullptr; }, "sample: tokens is null");
  broken([](SampleParams& p) { p.scratch = nullptr; }, "sample: scratch is null");
  broken([](SampleParams& p) { p.logits.dtype = DType::float16; }, "sample: logits is float16");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle

#include "kernels/cuda_operands.h"
#include "sample_cases.h"

namespace heddle {
namespace {

using SampleOnGpu = OnGpu;

std::vector<std::int32_t> sampled_on_gpu(const SampleRows& rows) {
  std::vector<HistoryToken> all;
  for (const auto& history : rows.histories) all.insert(all.end(), history.begin(), history.end());
  const GpuArray<HistoryToken> histories(all);
  std::vector<SampleRow> settings = rows.rows;
  std::size_t first = 0;
  for (std::size_t r = 0; r < settings.size(); first += rows.histories[r++].size())
    settings[r].history = histories.data() + first;
  const GpuArray<SampleRow> settings_there(settings);
  const GpuRows logits(rows.logits, DType::float32, {.gap = 1});
  GpuArray<std::int32_t> tokens(std::vector<std::int32_t>(settings.size(), 99));
  std::vector<std::int32_t> result;
  // A cluster takes a row on the whole device and on most of it, a block alone on the others.
  const int sms = num_sms_of(kGpu);
  for (const int num_sms : {sms, sms, sms - 1, sms / 2, 1}) {
    on_gpu([&](Stream& stream) {
      sample({.logits = logits, .rows = settings_there.data(), .tokens = tokens.data()}, {stream, num_sms});
    });
    if (!result.empty()) {
      EXPECT_EQ(tokens.values(), result) << "another run, on " << num_sms << " SMs";
    }
    result = tokens.values();
    tokens.set(std::vector<std::int32_t>(settings.size(), 99));
  }
  return result;
}

struct GpuSampleCase {
  std::int64_t vocab_size;
  int rows;
};

void expect_cpu_tokens(const GpuSampleCase& c) {
  const SampleRows rows = random_rows(c.vocab_size, c.rows, static_cast<unsigned>(c.vocab_size));
  const std::vector<std::int32_t> expected = sampled_on_cpu(rows, 8), tokens = sampled_on_gpu(rows);
  for (std::size_t r = 0; r < expected.size(); ++r) {
    const SampleRow& row = rows.rows[r];
    const float* logits = rows.logits.row(static_cast<std::int64_t>(r));
    EXPECT_EQ(tokens[r], expected[r]) << fmt::format(
        "vocabulary {} row {}: temperature {} top_k {} top_p {} min_p {} penalties {} {} {} history {} logits {} {}",
        c.vocab_size, r, row.temperature, row.top_k, row.top_p, row.min_p, row.repetition_penalty, row.presence_penalty,
        row.frequency_penalty, row.num_history, logits[0], logits[c.vocab_size / 2]);
  }
}

// Small enough for racecheck, which follows each access to shared memory: every filter, and more candidates than are
// listed.
TEST_F(SampleOnGpu, AHandfulOfRowsGetsTheTokensOfTheCpu) {
  for (const GpuSampleCase c : {GpuSampleCase{40, 4}, {1500, 6}}) expect_cpu_tokens(c);
}

// Small enough for memcheck.
TEST_F(SampleOnGpu, FewRowsGetTheTokensOfTheCpu) {
  for (const GpuSampleCase c : {GpuSampleCase{1, 10}, {2, 30}, {600, 100}, {9001, 20}}) expect_cpu_tokens(c);
}

TEST_F(SampleOnGpu, ThousandsOfRowsGetTheTokensOfTheCpu) {
  for (const GpuSampleCase c :
       {GpuSampleCase{40, 2000}, {511, 800}, {4097, 800}, {32000, 300}, {50257, 60}, {128256, 60}})
    expect_cpu_tokens(c);
}

TEST_F(SampleOnGpu, TakesVocabulariesUpToALimit) {
  Stream stream(kGpu);
  const GpuArray<SampleRow> rows(std::vector<SampleRow>(1));
  GpuArray<std::int32_t> tokens(std::vector<std::int32_t>(1));
  const std::int64_t size = kMostGpuVocabulary + 1;
  const Tensor logits{tokens.data(), 1, size, size, DType::float32};
  expect_invalid([&] { sample({.logits = logits, .rows = rows.data(), .tokens = tokens.data()}, stream); },
                 "sample: a row has 4194305 logits, a GPU takes 4194304");
}

}  // namespace
}  // namespace heddle

#include "fuzz/instant_engine.h"

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace heddle::fuzz {
namespace {

constexpr int kNumRows = 16;  // of logits, one of which a token chooses

class InstantModel : public Model {
 public:
  InstantModel(std::int64_t vocab_size, std::int32_t end)
      : shape_{.num_layers = 1,
               .kv = keys_and_values(1, 2, DType::float32),
               .vocab_size = vocab_size,
               .max_context = 512,
               .eos_ids = {end},
               .weight_bytes_per_step = 1} {
    std::mt19937 random(1);
    for (int i = 0; i < kNumRows; ++i)
      for (std::int64_t id = 0; id < vocab_size; ++id)
        rows_.push_back(static_cast<float>(random() % 1024) / 256.0F + (id == end ? 2.0F : 0.0F));
  }

  const ModelShape& shape() const override { return shape_; }

  Tensor run(const StepTensors& step, const KvPages& /*kv*/, Arena& arena, const Execution& execution) override {
    const Tensor logits = arena.take(step.num_logit_rows, shape_.vocab_size, DType::float32);
    if (execution.compute.dry_run != nullptr) return logits;
    execution.compute.stream.enqueue([this, step, logits](ThreadPool&) {
      const auto width = static_cast<std::size_t>(shape_.vocab_size);
      for (int i = 0; i < step.num_logit_rows; ++i) {
        const std::span all(rows_);
        const auto row = static_cast<std::size_t>(step.tokens[step.logit_rows[i]]) % kNumRows;
        std::ranges::copy(all.subspan(row * width, width),
                          static_cast<float*>(logits.data) + static_cast<std::size_t>(i) * width);
      }
    });
    return logits;
  }

 private:
  ModelShape shape_;
  std::vector<float> rows_;  // [kNumRows, vocab_size]
};

}  // namespace

std::unique_ptr<Engine> instant_engine(std::int64_t vocab_size, std::int32_t end) {
  constexpr int kPageTokens = 8;
  constexpr int kPages = 256;  // fewer than 8 sequences of 512 tokens may need, so that some wait or are computed again
  auto model = std::make_unique<InstantModel>(vocab_size, end);
  const std::int64_t page_bytes = static_cast<std::int64_t>(model->shape().kv_pages(kPageTokens, 1).size_bytes());
  return std::make_unique<Engine>(std::move(model), EngineOptions{.max_sequences = 8,
                                                                  .max_tokens_per_step = 64,
                                                                  .page_size = kPageTokens,
                                                                  .kv_bytes = kPages * page_bytes,
                                                                  .prefix_cache = true});
}

}  // namespace heddle::fuzz

#include "cli/chat/session.h"

#include <utility>

#include "base/error.h"
#include "cli/model_options.h"

namespace heddle {

ChatSession::ChatSession(RankModels ranks, std::string name, Tokenizer tokenizer, Stops stops,
                         const EngineOptions& options, ProgressShown shown)
    : name_(std::move(name)),
      tokenizer_(std::move(tokenizer)),
      stops_(std::move(stops)),
      engine_(std::move(ranks), options),
      shown_(shown) {}

std::vector<std::int32_t> ChatSession::encode(std::string_view prompt) const {
  return tokenizer_.encode(prompt, SpecialTokens::omit);
}

ChatAnswer ChatSession::answer(std::vector<std::int32_t> prompt, const ChatParameters& parameters,
                               const InterruptGuard& interrupt,
                               const std::function<void(std::string_view text)>& on_text) {
  const auto num_tokens = std::ssize(prompt);
  require(num_tokens < max_length(), "a conversation of {} tokens in a context of {}", num_tokens, max_length());
  Completion completion(tokenizer_, stops_.texts);
  const std::int64_t id = engine_.submit({.prompt = std::move(prompt),
                                          .sampling = parameters.sampling,
                                          .max_tokens = parameters.max_tokens,
                                          .stop_ids = stops_.ids,
                                          .after_end = AfterEnd::keep,
                                          .logit_bias = stops_.biases});
  ChatAnswer answer{.num_prompt_tokens = num_tokens};
  Progress progress("prefill", static_cast<std::size_t>(num_tokens), kTokens, shown_);
  try {
    while (!engine_.idle() && !interrupt.interrupted()) {
      const auto start = SpeedMeter::Clock::now();
      for (const TokenOutput& output : engine_.step()) {
        if (output.finish == FinishReason::error) fail_by_damaged_weights(name_, output.error);
        progress.hide();
        on_text(completion.push(output));
        if (completion.finished()) engine_.end(id);
      }
      answer.speed.add_step(engine_.last_step(), start);
      answer.num_computed_tokens += engine_.last_step().num_prompt_tokens;
      if (completion.tokens().empty()) progress.update(static_cast<std::size_t>(answer.num_computed_tokens));
    }
  } catch (...) {
    engine_.cancel(id);
    throw;
  }
  engine_.end(id);
  if (kept_) engine_.cancel(*kept_);
  kept_ = id;

  if (!completion.finished()) {
    answer.end = ChatAnswer::End::interrupted;
    on_text(completion.cut());
  } else if (completion.finish() == FinishReason::length) {
    answer.end = num_tokens + std::ssize(completion.tokens()) >= max_length() ? ChatAnswer::End::context
                                                                              : ChatAnswer::End::max_tokens;
  }
  answer.text = completion.text();
  return answer;
}

void ChatSession::reset() {
  if (kept_) engine_.cancel(*kept_);
  kept_.reset();
}

}  // namespace heddle

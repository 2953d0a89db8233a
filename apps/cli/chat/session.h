// The engine of one conversation. Successive prompts share most of their beginning; only what is new is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "cli/chat/parameters.h"
#include "cli/interrupt.h"
#include "cli/speed.h"
#include "engine/completion.h"

namespace heddle {

struct ChatAnswer {
  // Why an answer ended: at its own end or a stop string, at max_tokens, at the end of the context, by Ctrl-C.
  enum class End : std::uint8_t { stop, max_tokens, context, interrupted };

  std::string text;
  End end = End::stop;
  std::int64_t num_prompt_tokens = 0;    // of the whole conversation
  std::int64_t num_computed_tokens = 0;  // the part that was not in the cache
  SpeedMeter speed;
};

class ChatSession {
 public:
  // What ends an answer, and steers it.
  struct Stops {
    std::vector<std::int32_t> ids;
    std::vector<std::string> texts;
    std::vector<LogitBias> biases;  // of every answer
  };

  // `name`: of the model, for messages. `shown`: the progress of long prompts.
  ChatSession(RankModels ranks, std::string name, Tokenizer tokenizer, Stops stops, const EngineOptions& options,
              ProgressShown shown);

  std::int64_t max_length() const { return engine_.max_length(); }  // tokens of a conversation

  // A conversation as its template formats it. The template wrote the special tokens; the tokenizer adds none.
  std::vector<std::int32_t> encode(std::string_view prompt) const;

  // Answers `prompt`, of fewer tokens than max_length(), and passes on text as it becomes final. Keys and values stay in
  // the cache for the next call. Throws InputError when the model's logits are not finite.
  ChatAnswer answer(std::vector<std::int32_t> prompt, const ChatParameters& parameters, const InterruptGuard& interrupt,
                    const std::function<void(std::string_view text)>& on_text);

  // Throws the error of a rank that is lost while nobody types.
  void check_ranks() { engine_.check_ranks(); }

  // Drops the cached keys and values.
  void reset();

 private:
  std::string name_;
  Tokenizer tokenizer_;
  Stops stops_;
  Engine engine_;
  ProgressShown shown_;
  std::optional<std::int64_t> kept_;  // the last answer's request
};

}  // namespace heddle

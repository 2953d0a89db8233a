// The answer to one prompt, or to one of its samples, while it grows and as it is printed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/generate/prompt.h"
#include "engine/completion.h"

namespace heddle {

// A prompt as the model sees it.
struct EncodedPrompt {
  Prompt prompt;
  std::string text;  // of a conversation: as the chat template writes it
  std::vector<std::int32_t> tokens;
};

struct Answer {
  std::shared_ptr<const EncodedPrompt> to;
  int sample = 0;
  std::uint64_t seed = 0;
  std::optional<Completion> completion;  // none: not begun, or failed at once
  std::string error;                     // not empty: it failed

  bool failed() const { return !error.empty(); }
  bool ended() const { return failed() || (completion && completion->finished()); }
};

// One line of JSON for an answer that has ended:
//   {"line","id","sample","status":"ok","prompt","prompt_tokens","text","tokens","finish_reason","seed","logprobs"}
//   {"line","id","sample","status":"error","error"}
// "line" only for prompts of a file, "id" if the prompt has one, "sample" if it has several, "seed" if tokens were
// sampled, "logprobs" if they were requested. The seed repeats this answer alone.
struct AnswerJsonOptions {
  bool from_file = false;
  bool echo = false;  // "text" begins with the prompt
};
std::string answer_json(const Answer& answer, const Tokenizer& tokenizer, const AnswerJsonOptions& options);

// The title of an answer among others, in text: "prompts.jsonl:12, id \"a\", sample 2 of 4".
std::string answer_title(const Answer& answer, bool from_file);

}  // namespace heddle

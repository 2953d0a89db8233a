// A prompt to continue, with settings of its own, and where prompts come from.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/input.h"
#include "engine/token_history.h"
#include "step/step_plan.h"
#include "text/chat_template/model_chat_template.h"
#include "text/grammar/grammar.h"

namespace heddle {

struct GenerationSettings {
  SamplingParams sampling;
  bool own_seed = false;  // the seed is this prompt's, not the run's
  std::int64_t max_tokens = 256;
  int num_samples = 1;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_ids;  // beside the model's own end tokens
  bool ignore_eos = false;             // those do not end an answer
  std::optional<int> num_top_logprobs;
  std::vector<LogitBias> logit_bias;
  std::optional<grammar::GrammarSource> grammar;  // what the answer must be
};

struct Prompt {
  std::string where;       // "prompts.jsonl:12" or "--prompt", to begin a message with
  std::int64_t index = 0;  // in the run: its line in the file - 1
  nlohmann::json id;       // a string or a number; null: none
  std::string text;
  std::optional<TemplateInput> conversation;  // instead of `text`: the model's chat template writes it
  GenerationSettings settings;
  std::string error;  // not empty: the prompt cannot be continued, for this reason
};

inline constexpr int kMaxSamples = 1 << 16;  // of a prompt

// A line of a prompts file, which is an object of these fields:
//   "prompt" or "messages" (with "tools", "documents", "chat_template_kwargs"), "id",
//   "max_tokens", "n", "seed", "stop", "stop_ids", "ignore_eos", "logit_bias" (an object from ids to numbers),
//   "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logprobs",
//   and one of "json_object" (true), "json_schema" (a schema), "regex" and "choice" (a list of texts).
// A setting that is missing or null is that of `settings`. Never throws because of the line: any other field and any
// wrong value make a Prompt with an error that names line and field.
Prompt parse_prompt(std::string_view line, std::string where, const GenerationSettings& settings);

// The prompts in the lines of a file, "-" being standard input. A stream (is_stream) gives them as they come, any other
// file all at once.
class PromptReader {
 public:
  // Throws as LineStream does. `settings` as for parse_prompt.
  PromptReader(std::string file, GenerationSettings settings);

  // Waits for the first of them. Throws as read_input and split_lines do, and InputError when there are none.
  std::vector<Prompt> first();

  // Those that have come since, waiting `timeout` for any; perhaps none.
  std::vector<Prompt> more(std::chrono::milliseconds timeout);

  // There will be no others.
  bool ended() const { return !stream_ || stream_->ended(); }

 private:
  Prompt parse(std::string_view line, std::size_t number, const std::string& where) const;

  std::string file_;
  GenerationSettings settings_;
  std::unique_ptr<LineStream> stream_;
  std::size_t num_lines_ = 0;  // of the stream, so far
};

// All of standard input as one prompt, without the line end at its end.
std::string read_prompt_text();

}  // namespace heddle

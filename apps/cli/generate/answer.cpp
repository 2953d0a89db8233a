#include "cli/generate/answer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "cli/format_text.h"
#include "cli/logprob_json.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

ordered_json logprobs_json(const Completion& completion, const Tokenizer& tokenizer) {
  ordered_json list = ordered_json::array();
  for (const Completion::Logprob& logprob : completion.logprobs()) {
    ordered_json entry = logprob_json(logprob.token, &tokenizer);
    entry["top"] = ordered_json::array();
    for (const TokenLogprob& top : logprob.top) entry["top"].push_back(logprob_json(top, &tokenizer));
    list.push_back(std::move(entry));
  }
  return list;
}

void add_completion(const Answer& answer, const Tokenizer& tokenizer, bool echo, ordered_json& object) {
  const Completion& completion = *answer.completion;
  object["prompt"] = answer.to->text;
  object["prompt_tokens"] = answer.to->tokens.size();
  object["text"] = echo ? answer.to->text + completion.text() : completion.text();
  object["tokens"] = completion.tokens();
  object["finish_reason"] = completion.finish() == FinishReason::stop ? "stop" : "length";
  if (answer.to->prompt.settings.sampling.temperature > 0) object["seed"] = answer.seed;
  if (!completion.logprobs().empty()) object["logprobs"] = logprobs_json(completion, tokenizer);
}

}  // namespace

std::string answer_json(const Answer& answer, const Tokenizer& tokenizer, const AnswerJsonOptions& options) {
  require(answer.ended(), "answer: it has not ended");
  const Prompt& prompt = answer.to->prompt;
  ordered_json object;
  if (options.from_file) object["line"] = prompt.index + 1;
  if (!prompt.id.is_null()) object["id"] = prompt.id;
  if (prompt.settings.num_samples > 1) object["sample"] = answer.sample;
  object["status"] = answer.failed() ? "error" : "ok";
  if (answer.failed())
    object["error"] = answer.error;
  else
    add_completion(answer, tokenizer, options.echo, object);
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string answer_title(const Answer& answer, bool from_file) {
  const Prompt& prompt = answer.to->prompt;
  std::string title = from_file ? printable_text(prompt.where) : std::string();
  const auto add = [&](const std::string& part) { title += (title.empty() ? "" : ", ") + part; };
  if (!prompt.id.is_null()) add("id " + prompt.id.dump());
  if (prompt.settings.num_samples > 1)
    add(fmt::format("sample {} of {}", answer.sample + 1, prompt.settings.num_samples));
  return title;
}

}  // namespace heddle

// Bodies of the server's requests, and answers in which calls of tools are looked for. The first byte chooses: c, a chat;
// t, an answer with tagged calls; j, one in JSON; f, one of forced calls; anything else, a completion.
#include <string>

#include "fuzz/target.h"
#include "server/answer_text.h"
#include "server/api_error.h"
#include "server/generation_request.h"

namespace heddle::fuzz {
namespace {

using server::AnswerPart;
using server::AnswerText;

// The text of an answer, cut into pieces of `piece` bytes, as its parts.
std::string split_answer(std::string_view text, std::size_t piece, const server::AnswerForm& form) {
  AnswerText answer(form);
  std::string all;
  const auto take = [&](const std::vector<AnswerPart>& parts) {
    for (const AnswerPart& part : parts) {
      expect(part.kind == AnswerPart::Kind::call || !part.text.empty(), "an empty part");
      all += (part.kind == AnswerPart::Kind::call ? "\n" : "") + part.text;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(answer.push(text.substr(at, piece)));
  take(answer.finish());
  return all;
}

}  // namespace

void fuzz_requests(std::string_view input) {
  const char kind = input.empty() ? ' ' : input.front();
  const std::string_view rest = input.substr(input.empty() ? 0 : 1);
  if (kind == 't' || kind == 'j' || kind == 'f') {
    const server::AnswerForm form{.tools = kind == 't' ? server::ToolFormat::tagged : server::ToolFormat::json,
                                  .reasoning = AnswerText::Reasoning::closed,
                                  .only_calls = kind == 'f'};
    constexpr std::size_t kPiece = 5;
    expect(split_answer(rest, kPiece, form) == split_answer(rest, input.size(), form),
           "an answer's parts depend on how it is cut");
    return;
  }
  server::RequestDefaults defaults{.vocab_size = 1000, .tools = server::ToolFormat::tagged};
  try {
    const server::GenerationRequest request =
        kind == 'c' ? server::parse_chat_request(rest, defaults) : server::parse_completion_request(rest, defaults);
    expect(request.num_answers >= 1 && request.num_samples >= request.num_answers, "{} of {} answers",
           request.num_answers, request.num_samples);
    expect(request.chat || !request.prompts.empty(), "a completion of nothing");
  } catch (const server::ApiError& error) {
    check_message(error.what());
    expect(error.status == 400 || error.status == 501, "status {}", error.status);
    check_message(server::error_json(error));
  }
}

}  // namespace heddle::fuzz

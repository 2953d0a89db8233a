// One request for text under way: its answers grow with the engine's tokens, and are sent as a stream or at the end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/completion.h"
#include "server/answer_json.h"
#include "server/answer_text.h"
#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/generation_request.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/prompt_encoder.h"

namespace heddle::server {

// What all generations share.
struct GenerationContext {
  const Tokenizer& tokenizer;
  Metrics& metrics;
  bool reasons = false;  // the model writes <think>
};

struct GenerationInput {
  GenerationRequest request;
  EncodedPrompts prompts;
  std::string id;            // X-Request-Id
  std::string model;         // the name in the answer
  std::int64_t created = 0;  // seconds since 1970
  std::uint64_t owner = 0;   // of the key
  Clock::time_point arrival;
};

class Generation {
 public:
  // Answer i, of prompt i / num_samples, has the ticket first_ticket + i.
  Generation(GenerationContext context, GenerationInput input, Ticket first_ticket,
             std::shared_ptr<Responder> responder);

  int num_answers() const { return static_cast<int>(answers_.size()); }
  Ticket first_ticket() const { return first_ticket_; }
  const std::string& id() const { return input_.id; }
  std::uint64_t owner() const { return input_.owner; }
  double seconds_since_arrival() const;
  // For a log: who, how many tokens, how long; no text.
  std::string summary() const;

  // Answers that end without the engine (max_tokens 0), and an empty request's end.
  void start();

  // Takes what the engine says of one answer, at `time`. Returns whether the engine's request must be cancelled: a stop
  // string has ended the answer.
  bool take(Ticket ticket, const LoopOutput& output, Clock::time_point time);

  // Ends all answers with an error; a stream that has begun ends with an event.
  void fail(const ApiError& error);

  // Nothing more will be sent or taken.
  bool done() const { return done_; }

 private:
  struct Answer {
    Completion completion;
    AnswerText parts;
    std::vector<ScoredToken> prompt_tokens;  // with their log-probabilities, if wanted
    bool ended = false;
    bool role_sent = false;
    std::size_t num_logprobs_sent = 0;
    std::size_t text_offset = 0;
    int num_calls_sent = 0;             // begun, in a stream
    std::vector<AnswerPart> collected;  // of an answer that is not streamed
    std::optional<Clock::time_point> last_token;
    Clock::time_point started;  // its first step
    Clock::time_point first_token;
  };

  std::size_t prompt_of(std::size_t answer) const;
  int index_of(std::size_t answer) const;
  bool wants_prompt_scores() const;
  std::string prompt_text(std::size_t prompt) const;
  std::string finish_reason(const Answer& answer) const;
  void note_time(Answer& answer, Clock::time_point started, Clock::time_point time);
  void end_answer(std::size_t index, Clock::time_point time);
  std::vector<ScoredToken> new_scores(Answer& answer) const;
  Json head(const char* object) const;
  void send(std::size_t index, std::string_view choice);
  void send_plain(std::size_t index, std::string_view before, const std::string& text, std::string_view behind);
  void send_text(std::size_t index, const std::string& text, bool last);
  void send_chat(std::size_t index, const std::vector<AnswerPart>& parts, bool last);
  void finish_all();
  Json choice_json(std::size_t index, int shown_index);
  Json chat_choice(Answer& answer, int shown_index);
  Json completion_choice(std::size_t index, Answer& answer);
  std::vector<std::size_t> best_answers(std::size_t prompt) const;
  Json usage() const;

  GenerationContext context_;
  GenerationInput input_;
  Ticket first_ticket_;
  std::shared_ptr<Responder> responder_;
  std::vector<Answer> answers_;
  std::string chunk_head_;
  int num_ended_ = 0;
  bool begun_ = false;
  bool done_ = false;
};

}  // namespace heddle::server

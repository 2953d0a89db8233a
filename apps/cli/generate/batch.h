// Continues prompts with an engine, some of them at a time, and prints their answers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cli/generate/encoder.h"
#include "cli/generate/printer.h"
#include "engine/engine.h"
#include "engine/grammar_constraint.h"

namespace heddle {

struct BatchOptions {
  std::vector<std::int32_t> eos_ids;  // the model's own, which end an answer unless its prompt ignores them
  std::function<std::string(const std::string& error)> explain;  // says more of logits that are not finite
  int max_waiting = 128;     // requests in the engine; the others' prompts are not encoded yet
  bool as_finished = false;  // prints in order of finishing, not in order of the prompts
};

// A prompt of several samples is computed once: a request that only computes it comes first, and its keys and values
// are kept until the last sample has ended.
class Batch {
 public:
  // Everything must outlive it. Others may follow `prompts`.
  Batch(Engine& engine, PromptEncoder& encoder, Printer& printer, std::vector<Prompt> prompts, BatchOptions options);

  // Whether all prompts so far are answered.
  bool done() const { return prompts_.empty() && answers_.empty(); }

  // A prompt behind all others.
  void add(Prompt prompt);

  // Whether a prompt that came now would begin before another.
  bool takes_more() const { return prompts_.empty(); }

  // Encodes and submits what there is room for. A prompt that is wrong becomes an answer with an error.
  void submit();

  // Submits, advances the engine by a step and prints.
  void step();

  // Prints the answers that have ended although others before them have not. Call it last.
  void print_rest();

  std::int64_t num_answers() const { return num_answers_; }  // in all
  std::int64_t num_printed() const { return num_printed_; }
  std::int64_t num_prompt_tokens() const { return num_prompt_tokens_; }  // of prompts that have begun, each once

  // The tokens that answers may have, and how many of them are sampled; an answer that ends earlier counts as all of its.
  std::int64_t budget() const { return budget_; }
  std::int64_t spent() const { return spent_; }

 private:
  using Place = std::list<Answer>::iterator;

  // The samples of one prompt.
  struct Group {
    std::shared_ptr<const EncodedPrompt> prompt;
    Place next;  // the first that is not submitted
    int num_to_submit = 0;
    int num_running = 0;               // requests, with the one that computes the prompt
    bool computes_prompt = false;      // samples wait for it
    std::optional<std::int64_t> kept;  // the request that has computed the prompt
  };
  using GroupPlace = std::list<Group>::iterator;

  struct Running {
    GroupPlace group;
    std::optional<Place> answer;  // none: it computes the prompt
  };

  void begin(Prompt prompt);
  void submit_prompt(GroupPlace group);
  void submit_sample(GroupPlace group);
  std::vector<std::int32_t> stop_ids_of(const Prompt& prompt) const;
  std::vector<std::int32_t> end_ids_of(const Prompt& prompt) const;
  std::shared_ptr<TokenConstraint> constraint_of(const Prompt& prompt);
  void fail(GroupPlace group, const std::string& error);
  void take(const TokenOutput& output);
  void take_sampled(Answer& answer, const TokenOutput& output);
  std::string explained(const std::string& error);
  void end(Place answer);
  std::int64_t budget_of(const Prompt& prompt) const;
  void close(GroupPlace group);
  void print();

  Engine& engine_;
  PromptEncoder& encoder_;
  Printer& printer_;
  std::deque<Prompt> prompts_;  // that have not begun
  BatchOptions options_;
  std::optional<GrammarConstraints> constraints_;  // made for the first prompt with a grammar
  bool explained_ = false;
  std::list<Answer> answers_;  // of prompts that have begun, in order; without printed ones
  std::list<Group> groups_;
  std::vector<Place> ended_;                           // with as_finished: to be printed
  std::unordered_map<std::int64_t, Running> running_;  // by request
  std::int64_t num_answers_ = 0;
  std::int64_t num_printed_ = 0;
  std::int64_t num_prompt_tokens_ = 0;
  std::int64_t budget_ = 0;
  std::int64_t spent_ = 0;
};

}  // namespace heddle

#include "server/generation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"

namespace heddle::server {

Generation::Generation(GenerationContext context, GenerationInput input, Ticket first_ticket,
                       std::shared_ptr<Responder> responder)
    : context_(context), input_(std::move(input)), first_ticket_(first_ticket), responder_(std::move(responder)) {
  const GenerationRequest& request = input_.request;
  const AnswerForm form{.tools = request.tool_format,
                        .reasoning = !request.chat || !context_.reasons ? AnswerText::Reasoning::none
                                     : input_.prompts.opens_reasoning   ? AnswerText::Reasoning::open
                                                                        : AnswerText::Reasoning::closed,
                        .only_calls = request.tool_choice == ToolChoice::forced,
                        .one_call = !request.parallel_tool_calls};
  const Answer answer{.completion = Completion(context_.tokenizer, request.stop), .parts = AnswerText(form)};
  answers_.assign(input_.prompts.tokens.size() * static_cast<std::size_t>(request.num_samples), answer);
  if (wants_prompt_scores())
    for (std::size_t i = 0; i < answers_.size(); i += static_cast<std::size_t>(request.num_samples))
      answers_[i].prompt_tokens.push_back({input_.prompts.tokens[prompt_of(i)].front(), {}, {}});
  for (const auto& tokens : input_.prompts.tokens) context_.metrics.num_prompt_tokens += std::ssize(tokens);
  context_.metrics.num_answers.add(request.num_answers);
  if (request.max_tokens) context_.metrics.max_tokens.add(static_cast<double>(*request.max_tokens));
}

double Generation::seconds_since_arrival() const {
  return std::chrono::duration<double>(Clock::now() - input_.arrival).count();
}

std::string Generation::summary() const {
  std::int64_t prompt_tokens = 0, answer_tokens = 0;
  for (const auto& tokens : input_.prompts.tokens) prompt_tokens += std::ssize(tokens);
  for (const Answer& answer : answers_) answer_tokens += std::ssize(answer.completion.tokens());
  return fmt::format("{} {}: {} answers, {} + {} tokens, {:.3f} s{}", input_.request.chat ? "chat" : "completion",
                     input_.id, num_answers(), prompt_tokens, answer_tokens, seconds_since_arrival(),
                     done_ ? "" : ", cancelled");
}

std::size_t Generation::prompt_of(std::size_t answer) const {
  return answer / static_cast<std::size_t>(input_.request.num_samples);
}

bool Generation::wants_prompt_scores() const {
  return input_.request.num_prompt_logprobs || (input_.request.echo && input_.request.num_top_logprobs);
}

std::string Generation::prompt_text(std::size_t prompt) const {
  if (const auto* text = std::get_if<std::string>(&input_.request.prompts[prompt])) return *text;
  return context_.tokenizer.decode(input_.prompts.tokens[prompt], Specials::skip);
}

void Generation::start() {
  if (input_.request.stream) {
    begun_ = true;
    responder_->begin({.content_type = "text/event-stream; charset=utf-8"});
  }
  if (input_.request.echo && input_.request.stream)
    for (std::size_t i = 0; i < answers_.size(); ++i) send_text(i, prompt_text(prompt_of(i)), false);
  if (input_.request.max_tokens == 0 && !wants_prompt_scores())
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (input_.request.stream) send_text(i, {}, true);
      end_answer(i, Clock::now());
    }
}

void Generation::note_time(Answer& answer, Clock::time_point started, Clock::time_point time) {
  const auto seconds = [&](Clock::time_point since) { return std::chrono::duration<double>(time - since).count(); };
  if (answer.last_token) {
    context_.metrics.itl.add(seconds(*answer.last_token));
  } else {
    answer.started = started;
    answer.first_token = time;
    context_.metrics.queue.add(std::chrono::duration<double>(started - input_.arrival).count());
    context_.metrics.prefill.add(seconds(started));
    context_.metrics.ttft.add(seconds(input_.arrival));
  }
  answer.last_token = time;
  ++context_.metrics.num_generated;
}

bool Generation::take(Ticket ticket, const LoopOutput& entry, Clock::time_point time) {
  if (done_) return false;
  const auto index = static_cast<std::size_t>(ticket - first_ticket_);
  Answer& answer = answers_.at(index);
  if (answer.ended) return false;
  if (!entry.failure.empty()) {
    fail(ApiError(entry.bad_request ? 400 : 500, entry.failure));
    return false;
  }
  const TokenOutput& output = entry.output;
  if (output.prompt_index) {
    answer.prompt_tokens.push_back({output.token, output.logprob, output.top, output.rank});
    if (!output.finish) return false;  // otherwise max_tokens is 0
    if (input_.request.stream) send_text(index, {}, true);
    end_answer(index, time);
    return false;
  }
  note_time(answer, output.started, time);
  const std::string text = answer.completion.push(output);
  bool ended = answer.completion.finished();
  if (input_.request.chat) {
    std::vector<AnswerPart> parts = answer.parts.push(text);
    ended = ended || answer.parts.ended();
    if (ended)
      for (const AnswerPart& part : answer.parts.finish()) add_part(part.kind, part.text, parts);
    if (input_.request.stream)
      send_chat(index, parts, ended);
    else
      for (const AnswerPart& part : parts) add_part(part.kind, part.text, answer.collected);
  } else if (input_.request.stream) {
    send_text(index, text, ended);
  }
  if (!ended) return false;
  end_answer(index, time);
  return !output.finish;
}

void Generation::end_answer(std::size_t index, Clock::time_point time) {
  Answer& answer = answers_[index];
  answer.ended = true;
  Metrics& metrics = context_.metrics;
  const auto num_tokens = std::ssize(answer.completion.tokens());
  if (num_tokens > 1)
    metrics.tpot.add(std::chrono::duration<double>(time - answer.first_token).count() /
                     static_cast<double>(num_tokens - 1));
  if (num_tokens > 0) {
    metrics.decode.add(std::chrono::duration<double>(time - answer.first_token).count());
    metrics.inference.add(std::chrono::duration<double>(time - answer.started).count());
  }
  metrics.prompt_tokens.add(static_cast<double>(input_.prompts.tokens[prompt_of(index)].size()));
  metrics.answer_tokens.add(static_cast<double>(num_tokens));
  metrics.e2e.add(std::chrono::duration<double>(time - input_.arrival).count());
  ++metrics.finished[finish_reason(answer)];
  if (++num_ended_ == num_answers()) finish_all();
}

std::string Generation::finish_reason(const Answer& answer) const {
  const bool cut = answer.completion.finish() == FinishReason::length && !answer.parts.ended();
  if (cut) return "length";
  return answer.parts.num_calls() > 0 ? "tool_calls" : "stop";
}

// The log-probabilities that no chunk has had.
std::vector<ScoredToken> Generation::new_scores(Answer& answer) const {
  std::vector<ScoredToken> scores;
  const auto all = answer.completion.logprobs();
  for (; answer.num_logprobs_sent < all.size(); ++answer.num_logprobs_sent) {
    const Completion::Logprob& entry = all[answer.num_logprobs_sent];
    scores.push_back({entry.token.id, entry.token.logprob, entry.top});
  }
  return scores;
}

Json Generation::head(const char* object) const {
  return {{"id", (input_.request.chat ? "chatcmpl-" : "cmpl-") + input_.id},
          {"object", object},
          {"created", input_.created},
          {"model", input_.model}};
}

int Generation::index_of(std::size_t answer) const {
  const auto samples = static_cast<std::size_t>(input_.request.num_samples);
  return static_cast<int>(answer / samples) * input_.request.num_answers + static_cast<int>(answer % samples);
}

// One chunk with the JSON of its choice. The head is written once for all of them.
void Generation::send(std::size_t index, std::string_view choice) {
  if (chunk_head_.empty()) {
    chunk_head_ = "data: " + json_text(head(input_.request.chat ? "chat.completion.chunk" : "text_completion"));
    chunk_head_.back() = ',';  // the object goes on
    chunk_head_ += "\"choices\":[";
  }
  std::string event;
  constexpr std::size_t kEnd = 160;  // of what follows
  event.reserve(chunk_head_.size() + choice.size() + kEnd);
  event.append(chunk_head_).append(choice).append("]");
  if (input_.request.continuous_usage)
    event += ",\"usage\":" + json_text(usage_json(std::ssize(input_.prompts.tokens[prompt_of(index)]),
                                                  std::ssize(answers_[index].completion.tokens())));
  else if (input_.request.include_usage)
    event += ",\"usage\":null";
  event += "}\n\n";
  responder_->write(std::move(event));
}

// A chunk of text and nothing else, as nearly all are: no JSON value is built for it, which would take longer than the rest.
void Generation::send_plain(std::size_t index, std::string_view before, const std::string& text,
                            std::string_view behind) {
  send(index, fmt::format("{{\"index\":{},{}{}{},\"finish_reason\":null}}", index_of(index), before, json_string(text),
                          behind));
}

void Generation::send_text(std::size_t index, const std::string& text, bool last) {
  Answer& answer = answers_[index];
  std::vector<ScoredToken> scores;
  if (input_.request.num_top_logprobs) {
    if (last || !answer.completion.tokens().empty()) scores = std::exchange(answer.prompt_tokens, {});
    std::ranges::move(new_scores(answer), std::back_inserter(scores));
  }
  if (text.empty() && scores.empty() && !last) return;
  if (scores.empty() && !last) return send_plain(index, "\"text\":", text, ",\"logprobs\":null");
  Json choice{{"index", index_of(index)}, {"text", text}};
  choice["logprobs"] = scores.empty() ? Json() : completion_logprobs(scores, context_.tokenizer, answer.text_offset);
  choice["finish_reason"] = last ? Json(finish_reason(answer)) : Json();
  send(index, json_text(choice));
}

void Generation::send_chat(std::size_t index, const std::vector<AnswerPart>& parts, bool last) {
  Answer& answer = answers_[index];
  const auto send_delta = [&](Json delta, bool ends) {
    if (!std::exchange(answer.role_sent, true)) {
      Json with_role{{"role", "assistant"}};
      if (!delta.contains("content")) with_role["content"] = delta.empty() ? Json("") : Json();
      with_role.update(delta);
      delta = std::move(with_role);
    }
    Json choice{{"index", index_of(index)}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    if (input_.request.num_top_logprobs)
      if (const auto scores = new_scores(answer); !scores.empty())
        choice["logprobs"] = chat_logprobs(scores, context_.tokenizer);
    choice["finish_reason"] = ends ? Json(finish_reason(answer)) : Json();
    send(index, json_text(choice));
  };
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::call) {
      const std::string id = fmt::format("call_{}_{}_{}", input_.id, index_of(index), answer.num_calls_sent);
      Json call = tool_call_json(id, part.text, "");
      call["index"] = answer.num_calls_sent++;
      send_delta({{"tool_calls", Json::array({std::move(call)})}}, false);
    } else if (part.kind == AnswerPart::Kind::arguments) {
      const Json call{{"index", answer.num_calls_sent - 1}, {"function", {{"arguments", part.text}}}};
      send_delta({{"tool_calls", Json::array({call})}}, false);
    } else if (part.kind == AnswerPart::Kind::content && answer.role_sent && !input_.request.num_top_logprobs) {
      send_plain(index, "\"delta\":{\"content\":", part.text, "},\"logprobs\":null");
    } else {
      send_delta({{part.kind == AnswerPart::Kind::reasoning ? "reasoning_content" : "content", part.text}}, false);
    }
  }
  if (last || (parts.empty() && answer.num_logprobs_sent < answer.completion.logprobs().size()))
    send_delta(Json::object(), last);
}

void Generation::fail(const ApiError& error) {
  if (done_) return;
  done_ = true;
  context_.metrics.finished["error"] += num_answers() - num_ended_;
  if (!begun_) {
    responder_->respond(error_response(error));
    return;
  }
  responder_->write(sse_event(error_json(error)));
  responder_->write(sse_event("[DONE]"));
  responder_->end();
}

Json Generation::usage() const {
  std::int64_t prompt_tokens = 0, answer_tokens = 0;
  for (const auto& tokens : input_.prompts.tokens) prompt_tokens += std::ssize(tokens);
  for (const Answer& answer : answers_) answer_tokens += std::ssize(answer.completion.tokens());
  return usage_json(prompt_tokens, answer_tokens);
}

// The samples of a prompt that are answered, best mean log-probability first if there are more than n.
std::vector<std::size_t> Generation::best_answers(std::size_t prompt) const {
  const auto samples = static_cast<std::size_t>(input_.request.num_samples);
  std::vector<std::size_t> order(samples);
  std::iota(order.begin(), order.end(), prompt * samples);
  if (input_.request.num_samples > input_.request.num_answers) {
    const auto mean = [&](std::size_t index) {
      const auto logprobs = answers_[index].completion.logprobs();
      double sum = 0;
      for (const Completion::Logprob& entry : logprobs) sum += entry.token.logprob;
      return logprobs.empty() ? 0 : sum / static_cast<double>(logprobs.size());
    };
    std::ranges::stable_sort(order, std::greater(), mean);
  }
  order.resize(static_cast<std::size_t>(input_.request.num_answers));
  return order;
}

Json Generation::chat_choice(Answer& answer, int shown_index) {
  Json message{{"role", "assistant"}, {"content", nullptr}};
  std::string content, reasoning;
  Json calls = Json::array();
  for (const AnswerPart& part : answer.collected) {
    if (part.kind == AnswerPart::Kind::content) content += part.text;
    if (part.kind == AnswerPart::Kind::reasoning) reasoning += part.text;
    if (part.kind == AnswerPart::Kind::call)
      calls.push_back(
          tool_call_json(fmt::format("call_{}_{}_{}", input_.id, shown_index, calls.size()), part.text, ""));
    if (part.kind == AnswerPart::Kind::arguments)
      calls.back()["function"]["arguments"].get_ref<std::string&>() += part.text;
  }
  if (!content.empty() || calls.empty()) message["content"] = content;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  Json choice{{"message", std::move(message)}};
  const auto scores = new_scores(answer);
  choice["logprobs"] = input_.request.num_top_logprobs ? chat_logprobs(scores, context_.tokenizer) : Json();
  return choice;
}

Json Generation::completion_choice(std::size_t index, Answer& answer) {
  const GenerationRequest& request = input_.request;
  std::string text = answer.completion.text();
  if (request.echo) text.insert(0, prompt_text(prompt_of(index)));
  Json choice{{"text", std::move(text)}, {"logprobs", nullptr}};
  if (!request.num_top_logprobs) return choice;
  std::vector<ScoredToken> scores;
  if (request.echo) scores = answers_[prompt_of(index) * static_cast<std::size_t>(request.num_samples)].prompt_tokens;
  std::ranges::move(new_scores(answer), std::back_inserter(scores));
  choice["logprobs"] = completion_logprobs(scores, context_.tokenizer, answer.text_offset);
  return choice;
}

Json Generation::choice_json(std::size_t index, int shown_index) {
  Answer& answer = answers_[index];
  Json choice{{"index", shown_index}};
  choice.update(input_.request.chat ? chat_choice(answer, shown_index) : completion_choice(index, answer));
  choice["finish_reason"] = finish_reason(answer);
  if (input_.request.num_prompt_logprobs) {
    const auto first = prompt_of(index) * static_cast<std::size_t>(input_.request.num_samples);
    choice["prompt_logprobs"] = prompt_logprobs(answers_[first].prompt_tokens, context_.tokenizer);
  }
  return choice;
}

void Generation::finish_all() {
  done_ = true;
  std::size_t longest = 0;
  for (const Answer& answer : answers_) longest = std::max(longest, answer.completion.tokens().size());
  context_.metrics.most_answer_tokens.add(static_cast<double>(longest));
  if (input_.request.stream) {
    if (input_.request.include_usage) {
      Json chunk = head(input_.request.chat ? "chat.completion.chunk" : "text_completion");
      chunk["choices"] = Json::array();
      chunk["usage"] = usage();
      responder_->write(sse_event(json_text(chunk)));
    }
    responder_->write(sse_event("[DONE]"));
    responder_->end();
    return;
  }
  Json body = head(input_.request.chat ? "chat.completion" : "text_completion");
  body["choices"] = Json::array();
  int shown = 0;
  for (std::size_t prompt = 0; prompt < input_.prompts.tokens.size(); ++prompt)
    for (const std::size_t index : best_answers(prompt)) body["choices"].push_back(choice_json(index, shown++));
  body["usage"] = usage();
  responder_->respond({.body = json_text(body) + "\n"});
}

}  // namespace heddle::server

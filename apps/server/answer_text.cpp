#include "server/answer_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace heddle::server {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kSpaces = " \t\r\n";

// The length of the longest end of `text` that is a beginning of `tag`, not all of it.
std::size_t begun(std::string_view text, std::string_view tag) {
  for (std::size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length)
    if (tag.starts_with(text.substr(text.size() - length))) return length;
  return 0;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

AnswerText::State AnswerText::after_reasoning() const {
  if (form_.tools != ToolFormat::json) return State::content;
  return form_.only_calls ? State::calls : State::whole;
}

AnswerText::AnswerText(const AnswerForm& form)
    : form_(form),
      state_(form.reasoning == Reasoning::open     ? State::reasoning
             : form.reasoning == Reasoning::closed ? State::start
                                                   : after_reasoning()) {}

std::vector<AnswerPart> AnswerText::push(std::string_view text) {
  held_ += text;
  std::vector<AnswerPart> parts;
  while (advance(parts, false)) {
  }
  return parts;
}

std::vector<AnswerPart> AnswerText::finish() {
  std::vector<AnswerPart> parts;
  while (advance(parts, true)) {
  }
  const bool within_call = (state_ == State::call && reader_.begun()) || state_ == State::after_call;
  if (within_call || state_ == State::ended)
    held_.clear();
  else if (state_ == State::call)
    held_.insert(0, kCall);
  emit(state_ == State::reasoning ? AnswerPart::Kind::reasoning : AnswerPart::Kind::content, held_.size(), parts);
  return parts;
}

void AnswerText::emit(AnswerPart::Kind kind, std::size_t bytes, std::vector<AnswerPart>& parts) {
  if (kind != AnswerPart::Kind::content || !form_.only_calls)
    add_part(kind, std::string_view(held_).substr(0, bytes), parts);
  held_.erase(0, bytes);
}

// Emits what comes before `tag`, and removes the tag itself; true if it was there.
bool AnswerText::take_until(std::string_view tag, AnswerPart::Kind kind, State next, std::vector<AnswerPart>& parts,
                            bool last) {
  const std::size_t at = held_.find(tag);
  if (at == std::string::npos) {
    emit(kind, held_.size() - (last ? 0 : begun(held_, tag)), parts);
    return false;
  }
  emit(kind, at, parts);
  held_.erase(0, tag.size());
  state_ = next;
  return true;
}

// A call is complete, and the reader is ready for another one.
void AnswerText::end_call(State next) {
  reader_ = {};
  reader_gave_up_ = false;
  state_ = form_.one_call ? State::ended : next;
}

// Returns whether the state has changed.
bool AnswerText::advance(std::vector<AnswerPart>& parts, bool last) {
  if (skips_spaces_) {
    held_.erase(0, std::min(held_.find_first_not_of(kSpaces), held_.size()));
    skips_spaces_ = held_.empty();
  }
  switch (state_) {
    case State::start: {
      const std::size_t begin = std::min(held_.find_first_not_of(kSpaces), held_.size());
      const std::string_view text = std::string_view(held_).substr(begin);
      if (!last && text.size() < kThink.size() && kThink.starts_with(text)) return false;
      const bool thinks = text.starts_with(kThink);
      if (thinks) held_.erase(0, begin + kThink.size());
      state_ = thinks ? State::reasoning : after_reasoning();
      return true;
    }
    case State::reasoning: {
      if (!take_until(kThinkEnd, AnswerPart::Kind::reasoning, after_reasoning(), parts, last)) return false;
      skips_spaces_ = true;
      return true;
    }
    case State::content:
      if (form_.tools != ToolFormat::tagged) {
        emit(AnswerPart::Kind::content, held_.size(), parts);
        return false;
      }
      return take_until(kCall, AnswerPart::Kind::content, State::call, parts, last);
    case State::call:
      return advance_call(parts, last);
    case State::after_call: {
      const std::size_t end = held_.find(kCallEnd);
      if (end == std::string::npos) {
        held_.erase(0, held_.size() - begun(held_, kCallEnd));
        return false;
      }
      held_.erase(0, end + kCallEnd.size());
      skips_spaces_ = true;
      end_call(State::content);
      return !held_.empty();
    }
    case State::whole: {
      const std::string_view text = trimmed(held_);
      if (text.empty() || text.front() == '{') {
        if (!last || !add_calls(parts)) return false;
        held_.clear();
        return false;
      }
      state_ = State::content;
      return true;
    }
    case State::calls: {
      if (!reader_.begun()) {
        if (num_calls_ > 0) held_.erase(0, std::min(held_.find_first_not_of("; \t\r\n"), held_.size()));
        if (held_.empty()) return false;
      }
      const bool was_begun = reader_.begun();
      const CallReader::Outcome outcome = reader_.read(held_, parts);
      num_calls_ += !was_begun && reader_.begun() ? 1 : 0;
      if (outcome == CallReader::Outcome::broken) state_ = State::content;
      if (outcome == CallReader::Outcome::done) end_call(State::calls);
      return outcome != CallReader::Outcome::more;
    }
    case State::ended:
      held_.clear();
      return false;
  }
  return false;
}

// Within a tag.
bool AnswerText::advance_call(std::vector<AnswerPart>& parts, bool last) {
  if (!reader_gave_up_) {
    const bool was_begun = reader_.begun();
    const CallReader::Outcome outcome = reader_.read(held_, parts);
    num_calls_ += !was_begun && reader_.begun() ? 1 : 0;
    reader_gave_up_ = outcome == CallReader::Outcome::broken;
    if (outcome == CallReader::Outcome::done) state_ = State::after_call;
    if (outcome == CallReader::Outcome::done) return true;
    if (!reader_gave_up_ && !(last && !reader_.begun())) return false;
  }
  const std::size_t end = held_.find(kCallEnd);
  if (end == std::string::npos && !last) return false;
  if (!add_call(std::string_view(held_).substr(0, end), parts)) {
    if (end == std::string::npos) return false;  // finish() gives it out as content
    held_.insert(0, kCall);
    emit(AnswerPart::Kind::content, kCall.size() + end + kCallEnd.size(), parts);
    reader_gave_up_ = false;
    state_ = State::content;
  } else {
    held_.erase(0, end == std::string::npos ? end : end + kCallEnd.size());
    skips_spaces_ = true;
    end_call(State::content);
  }
  return !held_.empty();
}

// Adds the call that `json` is; false if it is none.
bool AnswerText::add_call(std::string_view json, std::vector<AnswerPart>& parts) {
  try {
    const nlohmann::ordered_json call = parse_ordered_json(trimmed(json), "a call");
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    const auto arguments = call.contains("arguments") ? call.find("arguments") : call.find("parameters");
    add_part(AnswerPart::Kind::call, call["name"].get<std::string>(), parts);
    add_part(AnswerPart::Kind::arguments,
             arguments == call.end()  ? "{}"
             : arguments->is_string() ? arguments->get<std::string>()
                                      : arguments->dump(),
             parts);
    ++num_calls_;
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// The whole text as calls with ; between them.
bool AnswerText::add_calls(std::vector<AnswerPart>& parts) {
  std::vector<AnswerPart> calls;
  std::string_view rest = held_;
  const int before = num_calls_;
  if (!add_call(rest, calls)) {
    for (std::size_t at = 0; at <= rest.size();) {  // a ; may stand in an argument: the shortest piece that is a call
      std::size_t end = std::min(rest.find(';', at), rest.size());
      while (end < rest.size() && !add_call(rest.substr(0, end), calls))
        end = std::min(rest.find(';', end + 1), rest.size());
      if (end == rest.size()) {
        if (!add_call(rest, calls)) {
          num_calls_ = before;
          return false;
        }
        break;
      }
      rest.remove_prefix(end + 1);
      at = 0;
    }
  }
  if (form_.one_call) {
    const auto is_call = [](const AnswerPart& part) { return part.kind == AnswerPart::Kind::call; };
    calls.erase(std::find_if(calls.begin() + 1, calls.end(), is_call), calls.end());
    num_calls_ = before + 1;
    state_ = State::ended;
  }
  std::ranges::move(calls, std::back_inserter(parts));
  return true;
}

}  // namespace heddle::server

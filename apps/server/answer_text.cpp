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

AnswerText::AnswerText(ToolFormat tools, Reasoning reasoning)
    : tools_(tools),
      state_(reasoning == Reasoning::open     ? State::reasoning
             : reasoning == Reasoning::closed ? State::start
             : tools == ToolFormat::json      ? State::whole
                                              : State::content) {}

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
  if (state_ == State::call) held_.insert(0, kCall);
  emit(state_ == State::reasoning ? AnswerPart::Kind::reasoning : AnswerPart::Kind::content, held_.size(), parts);
  return parts;
}

void AnswerText::emit(AnswerPart::Kind kind, std::size_t bytes, std::vector<AnswerPart>& parts) {
  if (bytes == 0) return;
  if (!parts.empty() && parts.back().kind == kind)
    parts.back().text += held_.substr(0, bytes);
  else
    parts.push_back({.kind = kind, .text = held_.substr(0, bytes)});
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

// Returns whether the state has changed.
bool AnswerText::advance(std::vector<AnswerPart>& parts, bool last) {
  if (skips_spaces_) {
    held_.erase(0, std::min(held_.find_first_not_of(kSpaces), held_.size()));
    skips_spaces_ = held_.empty();
  }
  const State after_reasoning = tools_ == ToolFormat::json ? State::whole : State::content;
  switch (state_) {
    case State::start: {
      const std::size_t begin = std::min(held_.find_first_not_of(kSpaces), held_.size());
      const std::string_view text = std::string_view(held_).substr(begin);
      if (!last && text.size() < kThink.size() && kThink.starts_with(text)) return false;
      const bool thinks = text.starts_with(kThink);
      if (thinks) held_.erase(0, begin + kThink.size());
      state_ = thinks ? State::reasoning : after_reasoning;
      return true;
    }
    case State::reasoning: {
      if (!take_until(kThinkEnd, AnswerPart::Kind::reasoning, after_reasoning, parts, last)) return false;
      skips_spaces_ = true;
      return true;
    }
    case State::content:
      if (tools_ != ToolFormat::tagged) {
        emit(AnswerPart::Kind::content, held_.size(), parts);
        return false;
      }
      return take_until(kCall, AnswerPart::Kind::content, State::call, parts, last);
    case State::call: {
      const std::size_t end = held_.find(kCallEnd);
      if (end == std::string::npos && !last) return false;
      const std::string json = held_.substr(0, end);
      if (!add_call(json, parts)) {
        if (end == std::string::npos) return false;  // finish() gives it out as content
        held_.insert(0, kCall);
        emit(AnswerPart::Kind::content, kCall.size() + end + kCallEnd.size(), parts);
      } else {
        held_.erase(0, end == std::string::npos ? end : end + kCallEnd.size());
        skips_spaces_ = true;
      }
      state_ = State::content;
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
  }
  return false;
}

// Adds the call that `json` is; false if it is none.
bool AnswerText::add_call(std::string_view json, std::vector<AnswerPart>& parts) {
  try {
    const nlohmann::ordered_json call = parse_ordered_json(trimmed(json), "a call");
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    const auto arguments = call.contains("arguments") ? call.find("arguments") : call.find("parameters");
    AnswerPart part{.kind = AnswerPart::Kind::tool_call, .name = call["name"].get<std::string>(), .arguments = "{}"};
    if (arguments != call.end())
      part.arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
    parts.push_back(std::move(part));
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
  std::ranges::move(calls, std::back_inserter(parts));
  return true;
}

}  // namespace heddle::server

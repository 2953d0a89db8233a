#include "cli/chat/parameters.h"

#include <charconv>

#include "base/error.h"
#include "engine/sampler.h"

namespace heddle {
namespace {

// Calls visit(name, value) for each parameter.
template <class Parameters, class Visit>
void for_each(Parameters& parameters, Visit visit) {
  auto& sampling = parameters.sampling;
  visit("temperature", sampling.temperature);
  visit("top_k", sampling.top_k);
  visit("top_p", sampling.top_p);
  visit("min_p", sampling.min_p);
  visit("repetition_penalty", sampling.repetition_penalty);
  visit("presence_penalty", sampling.presence_penalty);
  visit("frequency_penalty", sampling.frequency_penalty);
  visit("seed", sampling.seed);
  visit("max_tokens", parameters.max_tokens);
}

void assign_one(ChatParameters& parameters, std::string_view name, std::string_view text) {
  bool known = false;
  std::string names;
  for_each(parameters, [&](std::string_view each, auto& value) {
    names += names.empty() ? each : fmt::format(", {}", each);
    if (each != name) return;
    known = true;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw_error<InputError>("{} is \"{}\", expected a {}", name, text,
                              std::is_integral_v<std::remove_reference_t<decltype(value)>> ? "whole number" : "number");
  });
  if (!known) throw_error<InputError>("unknown parameter \"{}\"; there are {}", name, names);
}

}  // namespace

std::string ChatParameters::list() const {
  std::string text;
  for_each(*this, [&](std::string_view name, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  });
  return text;
}

void ChatParameters::assign(std::string_view assignments) {
  constexpr std::string_view kSpaces = " \t\r\n,";
  ChatParameters changed = *this;
  for (std::size_t begin; (begin = assignments.find_first_not_of(kSpaces)) != std::string_view::npos;) {
    assignments.remove_prefix(begin);
    const std::string_view word = assignments.substr(0, assignments.find_first_of(kSpaces));
    assignments.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) throw_error<InputError>("\"{}\": expected name=value", word);
    assign_one(changed, word.substr(0, equals), word.substr(equals + 1));
  }
  validate(changed.sampling);
  if (changed.max_tokens < 1) throw_error<InputError>("max_tokens is {}, it must be at least 1", changed.max_tokens);
  *this = changed;
}

}  // namespace heddle

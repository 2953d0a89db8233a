#include "text/chat_template/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::jinja {

std::optional<Value> CallArguments::take(std::string_view name) {
  const auto found =
      std::find_if(keyword.begin(), keyword.end(), [&](const auto& argument) { return argument.first == name; });
  if (found == keyword.end()) return std::nullopt;
  Value value = std::move(found->second);
  keyword.erase(found);
  return value;
}

Bound::Bound(std::string_view function, CallArguments arguments, std::initializer_list<std::string_view> parameters,
             std::size_t required) {
  if (arguments.positional.size() > parameters.size())
    throw TemplateError(fmt::format("{}() takes at most {} argument(s), {} given", function, parameters.size(),
                                    arguments.positional.size()));
  values_.resize(parameters.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.keyword) {
    const auto* place = std::find(parameters.begin(), parameters.end(), name);
    if (place == parameters.end())
      throw TemplateError(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    std::optional<Value>& slot = values_[static_cast<std::size_t>(place - parameters.begin())];
    if (slot) throw TemplateError(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i])
      throw TemplateError(fmt::format("{}() missing required argument '{}'", function, *(parameters.begin() + i)));
}

}  // namespace heddle::jinja

// The arguments of a call, and their binding to parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/value.h"

namespace heddle::jinja {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  // Removes a keyword argument and returns it.
  std::optional<Value> take(std::string_view name);
};

// Binds arguments to parameters: positional ones in order, the rest by name. Throws TemplateError, as Python would, on
// too many, unknown or duplicate arguments, and on missing ones among the first `required`.
class Bound {
 public:
  Bound(std::string_view function, CallArguments arguments, std::initializer_list<std::string_view> parameters,
        std::size_t required = 0);

  bool has(std::size_t parameter) const { return values_[parameter].has_value(); }
  Value get(std::size_t parameter, Value otherwise = {}) const {
    return values_[parameter].value_or(std::move(otherwise));
  }

 private:
  std::vector<std::optional<Value>> values_;
};

}  // namespace heddle::jinja

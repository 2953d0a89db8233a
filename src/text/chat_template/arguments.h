// The arguments of a call, and their names at the callee.
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

  // Takes a keyword argument out.
  std::optional<Value> take(std::string_view name);
};

// Arguments by parameter: positional ones in order, the rest by name. Throws TemplateError, as Python would, on too
// many, unknown, doubled and (of the first `required`) missing ones.
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

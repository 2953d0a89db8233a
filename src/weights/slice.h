// A part of a dimension of a tensor: what one rank holds of it.
#pragma once

#include <cstdint>

namespace heddle {

struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return first + count; }

  // The same of a dimension in which each element here is `elements` there: rows of heads.
  Slice times(std::int64_t elements) const { return {first * elements, count * elements}; }

  friend bool operator==(const Slice&, const Slice&) = default;
};

}  // namespace heddle

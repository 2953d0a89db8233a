// The purpose of a wait, up to 15 characters, which a kernel hands on to the text of an error.
#pragma once

#include <cstddef>
#include <string_view>

namespace heddle {

struct Tag {
  static constexpr std::size_t kLongest = 15;

  constexpr Tag() = default;
  // From a literal; a longer one does not compile.
  template <std::size_t N>
  constexpr Tag(const char (&literal)[N]) {  // NOLINT(google-explicit-constructor): literals are what tags are
    static_assert(N - 1 <= kLongest, "a tag has at most 15 characters");
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }

  constexpr std::string_view view() const { return {text}; }

  alignas(8) char text[kLongest + 1] = {};  // ends in a zero; aligned, so that kernels copy it in words
};

}  // namespace heddle

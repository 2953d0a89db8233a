// Python's textwrap.wrap, as jinja2's filter wordwrap configures it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

struct WrapRules {
  std::int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// The lines of one paragraph, of at most `width` code points where words allow it, without trailing white space. Throws
// TemplateError when width < 1.
std::vector<std::string> wrap_words(std::string_view paragraph, const WrapRules& rules);

}  // namespace heddle::jinja

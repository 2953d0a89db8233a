// A template's text as tokens, cut as jinja2 cuts it with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

struct Token {
  enum class Type { data, variable_begin, variable_end, block_begin, block_end, name, string, integer, real, op, end };
  Type type = Type::end;
  std::string text;  // data, name, string without quotes and escapes, operator
  int line = 1;
  std::int64_t integer = 0;
  double real = 0;
};

// A message may quote the template, or be its own: so much of it is shown, as printable text.
constexpr std::size_t kMaxMessageBytes = 1000;

// `where` begins the message of an InputError. Throws it, with the line, on what is no template.
std::vector<Token> tokenize(std::string_view source, std::string_view where);

}  // namespace heddle::jinja

// Splits a template into tokens, as jinja2 does with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

struct Token {
  enum class Type { data, variable_begin, variable_end, block_begin, block_end, name, string, integer, real, op, end };
  Type type = Type::end;
  std::string text;  // of data, name, string (unquoted and unescaped) and operator
  int line = 1;
  std::int64_t integer = 0;
  double real = 0;
};

// A message may quote the template, or come from it: this much of it is shown, as printable text.
constexpr std::size_t kMaxMessageBytes = 1000;

// `where` begins the message. Throws InputError with the line where the text is not a valid template.
std::vector<Token> tokenize(std::string_view source, std::string_view where);

}  // namespace heddle::jinja

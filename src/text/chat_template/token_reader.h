// Reads a template's tokens one by one, and reports unexpected ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/lexer.h"

namespace heddle::jinja {

class TokenReader {
 public:
  // `where` begins every message, and must outlive the reader. Throws as tokenize does.
  TokenReader(std::string_view source, std::string_view where) : where_(where), tokens_(tokenize(source, where)) {}

  const Token& peek(std::size_t ahead = 0) const;
  const Token& next();  // at the end, returns the token `end` again and again

  bool at(Token::Type type) const { return peek().type == type; }
  bool at_op(std::string_view op, std::size_t ahead = 0) const;
  bool at_name(std::string_view name, std::size_t ahead = 0) const;
  bool skip_op(std::string_view op) { return at_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (next(), true); }

  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(Token::Type type, std::string_view what);
  std::string any_name();

  // Throws InputError "<where>, line N: <message>"; without `line`, with that of the next token.
  [[noreturn]] void fail(std::string_view message, int line = 0) const;

 private:
  [[noreturn]] void fail_expected(std::string_view what) const;

  std::string_view where_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// The token's name in jinja2's messages.
std::string describe(const Token& token);

// Counts one level of the parser's recursion during its life.
class Nested {
 public:
  Nested(const TokenReader& reader, int& depth, int most, std::string_view limit);
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  ~Nested() { --depth_; }

 private:
  int& depth_;
};

}  // namespace heddle::jinja

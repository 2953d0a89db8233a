#include "text/chat_template/token_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {

const Token& TokenReader::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

const Token& TokenReader::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::at_op(std::string_view op, std::size_t ahead) const {
  return peek(ahead).type == Token::Type::op && peek(ahead).text == op;
}

bool TokenReader::at_name(std::string_view name, std::size_t ahead) const {
  return peek(ahead).type == Token::Type::name && peek(ahead).text == name;
}

void TokenReader::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_expected(op);
}

void TokenReader::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(name);
}

void TokenReader::expect(Token::Type type, std::string_view what) {
  if (!at(type)) fail_expected(what);
  next();
}

std::string TokenReader::any_name() {
  if (!at(Token::Type::name)) fail_expected("name");
  return next().text;
}

void TokenReader::fail(std::string_view message, int line) const {
  throw_error<InputError>("{}, line {}: {}", where_, line ? line : peek().line, printable(message, kMaxMessageBytes));
}

void TokenReader::fail_expected(std::string_view what) const {
  if (at(Token::Type::end)) fail(fmt::format("unexpected end of template, expected '{}'.", what));
  fail(fmt::format("expected token '{}', got {}", what, in_quotes(describe(peek()))));
}

std::string describe(const Token& token) {
  switch (token.type) {
    case Token::Type::data:
      return "template data / text";
    case Token::Type::variable_begin:
      return "begin of print statement";
    case Token::Type::variable_end:
      return "end of print statement";
    case Token::Type::block_begin:
      return "begin of statement block";
    case Token::Type::block_end:
      return "end of statement block";
    case Token::Type::integer:
      return "integer";
    case Token::Type::real:
      return "float";
    case Token::Type::string:
      return "string";
    case Token::Type::end:
      return "end of template";
    default:
      return token.text;
  }
}

Nested::Nested(const TokenReader& reader, int& depth, int most, std::string_view limit) : depth_(depth) {
  if (depth_ >= most) reader.fail(fmt::format("nested deeper than {} = {} levels", limit, most));
  ++depth_;
}

}  // namespace heddle::jinja

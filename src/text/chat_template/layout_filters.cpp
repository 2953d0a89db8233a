#include "text/chat_template/layout_filters.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "text/chat_template/html_text.h"
#include "text/chat_template/interpreter.h"
#include "text/chat_template/pretty_print.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"
#include "text/chat_template/word_wrap.h"

namespace heddle::jinja {
namespace {

Value filter_filesizeformat(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("filesizeformat", std::move(arguments), {"binary"});
  require_defined(value);
  std::optional<double> bytes;
  if (value.is_number()) bytes = value.real();
  if (value.is_string()) bytes = parse_real(value.string());
  if (!bytes) throw TemplateError(fmt::format("could not convert to float: {}", to_repr(in.meter(), value)));
  const bool binary = truth(bound.get(0));
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return in.text("1 Byte");
  if (*bytes < base) return in.text(fmt::format("{} Bytes", whole(*bytes)));
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t prefix = 0;
  for (unit *= base; *bytes >= unit && prefix + 1 < kPrefixes.size(); ++prefix) unit *= base;
  const char letter = binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  const double count = base * *bytes / unit;
  const std::string number = std::isfinite(count) ? fmt::format("{:.1f}", count) : real_text(count);
  return in.text(fmt::format("{} {}{}", number, letter, binary ? "iB" : "B"));
}

Value filter_pprint(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("pprint", std::move(arguments), {});
  return in.text(pretty_print(in.meter(), value));
}

Value filter_striptags(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("striptags", std::move(arguments), {});
  const std::string text = to_text(in.meter(), value);
  in.meter().expect(2 * text.size());
  in.meter().step(text.size());
  return in.text(strip_tags(text));
}

Value filter_wordwrap(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("wordwrap", std::move(arguments), {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  require_defined(value);
  if (!value.is_string()) throw TemplateError(fmt::format("wordwrap: expected a string, not {}", type_name(value)));
  const WrapRules rules{.width = as_index(bound.get(0, Value(std::int64_t{79}))),
                        .break_long_words = truth(bound.get(1, Value(true))),
                        .break_on_hyphens = truth(bound.get(3, Value(true)))};
  const Value between = bound.get(2);
  const std::string line_end = between.is_none() ? "\n" : to_text(in.meter(), between);
  constexpr std::size_t kBytesEach = 64;  // per code point; in the worst case each has its own line
  in.meter().expect(kBytesEach * value.string().size());
  in.meter().step(value.string().size());
  std::string result;
  bool first = true;
  for (const std::string_view paragraph : split_lines(value.string())) {
    if (!std::exchange(first, false)) result += line_end;
    bool first_line = true;
    for (const std::string& line : wrap_words(paragraph, rules)) {
      in.meter().step_bytes(line.size() + line_end.size());
      in.meter().expect(result.size() + line.size() + line_end.size());
      if (!std::exchange(first_line, false)) result += line_end;
      result += line;
    }
  }
  return in.text(std::move(result));
}

Value filter_xmlattr(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("xmlattr", std::move(arguments), {"autospace"});
  require_defined(value);
  if (!value.is(Kind::dict)) throw TemplateError(fmt::format("'{}' object has no attribute 'items'", type_name(value)));
  const auto escaped = [&](const Value& part) {
    const std::string text = to_text(in.meter(), part);
    in.meter().expect(6 * text.size());
    return part.is_string() && part.as_text().markup ? text : escape_html(text);
  };
  std::string result;
  for (const auto& [key, member] : value.dict().members) {
    if (member.is_none() || member.is_undefined()) continue;
    if (!key.is_string()) throw TemplateError(fmt::format("expected string, got '{}'", type_name(key)));
    if (key.string().find_first_of("/>=") != std::string_view::npos || split(key.string(), -1).size() != 1 ||
        strip(key.string()) != key.string())
      throw TemplateError(fmt::format("Invalid character in attribute name: {}", in_quotes(key.string())));
    result += fmt::format("{}{}=\"{}\"", result.empty() ? "" : " ", escaped(key), escaped(member));
    in.meter().expect(result.size());
  }
  return in.text(!result.empty() && truth(bound.get(0, Value(true))) ? " " + result : result);
}

}  // namespace

std::map<std::string_view, Filter> layout_filters() {
  return {
      {"filesizeformat", filter_filesizeformat},
      {"pprint", filter_pprint},
      {"striptags", filter_striptags},
      {"wordwrap", filter_wordwrap},
      {"xmlattr", filter_xmlattr},
  };
}

}  // namespace heddle::jinja

#include "text/chat_template/text_filters.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

template <std::string (*function)(std::string_view)>
Value mapped(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("filter", std::move(arguments), {});
  const std::string text = to_text(in.meter(), value);
  in.meter().expect(3 * text.size());
  return in.text(function(text));
}

Value filter_string(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("string", std::move(arguments), {});
  return value.is_string() ? value : in.text(to_text(in.meter(), value));
}

Value filter_trim(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("trim", std::move(arguments), {"chars"});
  const std::string text = to_text(in.meter(), value);
  const Value chars = bound.get(0);
  if (chars.is_none()) return in.text(std::string(strip(text)));
  require_defined(chars);
  if (!chars.is_string()) throw TemplateError(fmt::format("strip arg must be None or str, not {}", type_name(chars)));
  in.meter().step_bytes(text.size() * (1 + chars.string().size() / 8));
  return in.text(std::string(strip(text, chars.string())));
}

Value filter_replace(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("replace", std::move(arguments), {"old", "new", "count"}, 2);
  const std::string text = to_text(in.meter(), value), from = to_text(in.meter(), bound.get(0)),
                    to = to_text(in.meter(), bound.get(1));
  const Value limit = bound.get(2);
  const std::int64_t most = limit.is_none() ? -1 : as_index(limit);
  if (most == 0) return in.text(text);
  in.meter().step_bytes(text.size());
  std::int64_t times = from.empty() ? static_cast<std::int64_t>(count_code_points(text)) + 1 : count(text, from);
  if (most > 0) times = std::min(times, most);
  std::size_t added = 0;
  const bool too_much = __builtin_mul_overflow(static_cast<std::size_t>(times), to.size(), &added);
  in.meter().expect(too_much || added > SIZE_MAX / 2 ? SIZE_MAX / 2 : text.size() + added);
  return in.text(replace(text, from, to, most));
}

Value filter_escape(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("escape", std::move(arguments), {});
  if (value.is_string() && value.as_text().markup) return value;
  const std::string text = to_text(in.meter(), value);
  in.meter().expect(6 * text.size());
  return Value::text(&in.meter(), escape_html(text), true);
}

Value filter_safe(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("safe", std::move(arguments), {});
  return Value::text(&in.meter(), to_text(in.meter(), value), true);
}

Value filter_format(Interpreter& in, const Value& value, CallArguments arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty())
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  const std::string format = to_text(in.meter(), value);
  if (arguments.keyword.empty())
    return in.text(format_percent(in.meter(), format, Value::tuple(in.meter(), std::move(arguments.positional))));
  Dict::Members members;
  for (auto& [name, argument] : arguments.keyword) members.emplace_back(in.text(name), std::move(argument));
  return in.text(format_percent(in.meter(), format, Dict::make(in.meter(), std::move(members))));
}

Value filter_indent(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("indent", std::move(arguments), {"width", "first", "blank"});
  require_defined(value);
  if (!value.is_string()) throw TemplateError(fmt::format("indent: expected a string, not {}", type_name(value)));
  const Value width = bound.get(0, Value(std::int64_t{4}));
  std::string indent;
  if (width.is_string()) {
    indent = width.string();
  } else {
    const std::int64_t columns = std::max<std::int64_t>(as_index(width), 0);
    in.meter().expect(static_cast<std::size_t>(columns));
    indent.assign(static_cast<std::size_t>(columns), ' ');
  }
  const bool first = truth(bound.get(1)), blank = truth(bound.get(2));
  const std::string with_end = std::string(value.string()) + "\n";
  const std::vector<std::string_view> lines = split_lines(with_end);
  std::string result = first ? indent : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    in.meter().step_bytes(indent.size());
    in.meter().expect(result.size() + indent.size() + lines[i].size() + 1);
    if (i > 0) {
      result += '\n';
      if (blank || !lines[i].empty()) result += indent;
    }
    result += lines[i];
  }
  return in.text(std::move(result));
}

Value filter_truncate(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("truncate", std::move(arguments), {"length", "killwords", "end", "leeway"});
  const std::int64_t most = bound.has(0) ? as_index(bound.get(0)) : 255;
  const Value end = bound.get(2, in.text("..."));
  if (!end.is_string()) throw TemplateError("truncate: end must be a string");
  const auto end_size = static_cast<std::int64_t>(end.as_text().length);
  const Value leeway_given = bound.get(3);
  const std::int64_t leeway = leeway_given.is_none() ? 5 : as_index(leeway_given);
  if (most < end_size) throw TemplateError(fmt::format("expected length >= {}, got {}", end_size, most));
  if (leeway < 0) throw TemplateError(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto size = length(value);
  if (!size) throw TemplateError(fmt::format("object of type '{}' has no len()", type_name(value)));
  if (*size <= checked_add(most, leeway)) return value;
  if (!value.is_string()) throw TemplateError(fmt::format("truncate: expected a string, not {}", type_name(value)));
  std::string_view kept = value.string().substr(0, byte_of(value.string(), static_cast<std::size_t>(most - end_size)));
  if (!truth(bound.get(1)))
    if (const std::size_t space = kept.rfind(' '); space != std::string_view::npos) kept = kept.substr(0, space);
  return in.text(std::string(kept) + std::string(end.string()));
}

}  // namespace

std::map<std::string_view, Filter> text_filters() {
  return {
      {"capitalize", mapped<capitalize>}, {"e", filter_escape},      {"escape", filter_escape},
      {"format", filter_format},          {"indent", filter_indent}, {"lower", mapped<lower>},
      {"replace", filter_replace},        {"safe", filter_safe},     {"string", filter_string},
      {"title", mapped<title_words>},     {"trim", filter_trim},     {"truncate", filter_truncate},
      {"upper", mapped<upper>},
  };
}

}  // namespace heddle::jinja

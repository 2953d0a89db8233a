#include "text/chat_template/string_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

// A method call on a string: the string, and how to make results.
struct Call {
  Interpreter& in;
  const Value& self;
  std::string_view name;
  CallArguments arguments;

  std::string_view text() const { return self.string(); }
  Value made(std::string result) const { return in.text(std::move(result)); }
  Bound bind(std::initializer_list<std::string_view> parameters, std::size_t required = 0) {
    return {name, std::move(arguments), parameters, required};
  }
  Value list(const std::vector<std::string_view>& parts) const {
    in.meter().expect(parts.size() * 128);
    std::vector<Value> items;
    items.reserve(parts.size());
    for (const std::string_view part : parts) items.push_back(made(std::string(part)));
    return Value::list(in.meter(), std::move(items));
  }
};

std::string_view as_string(const Value& value) {
  require_defined(value);
  if (!value.is_string()) throw TemplateError(fmt::format("must be str, not {}", type_name(value)));
  return value.string();
}

template <std::string (*function)(std::string_view)>
Value mapped(Call call) {
  call.bind({});
  call.in.meter().expect(3 * call.text().size());
  return call.made(function(call.text()));
}

template <CharClass what>
Value all_are(Call call) {
  call.bind({});
  return Value(is_all(call.text(), what));
}

template <Side side>
Value stripped(Call call) {
  const Bound bound = call.bind({"chars"});
  const Value chars = bound.get(0);
  if (chars.is_none()) return call.made(std::string(strip(call.text(), {}, side)));
  const std::string_view set = as_string(chars);
  call.in.meter().step_bytes(std::min(call.text().size(), std::size_t{1} << 30) * (1 + set.size() / 8));
  return call.made(std::string(strip(call.text(), set, side)));
}

template <Side side>
Value split_up(Call call) {
  const Bound bound = call.bind({"sep", "maxsplit"});
  const std::int64_t most = bound.has(1) ? as_index(bound.get(1)) : -1;
  const Value separator = bound.get(0);
  if (separator.is_none())
    return call.list(side == Side::left ? split(call.text(), most) : split_right(call.text(), most));
  const std::string_view by = as_string(separator);
  if (by.empty()) throw TemplateError("empty separator");
  return call.list(side == Side::left ? split(call.text(), by, most) : split_right(call.text(), by, most));
}

template <Side side>
Value partitioned(Call call) {
  const Bound bound = call.bind({"sep"}, 1);
  const Value separator = bound.get(0);
  const std::string_view text = call.text(), by = as_string(separator);
  if (by.empty()) throw TemplateError("empty separator");
  const std::size_t at = side == Side::left ? text.find(by) : text.rfind(by);
  if (at == std::string_view::npos) {
    const Value all = call.made(std::string(text));
    return Value::tuple(call.in.meter(), side == Side::left ? std::vector<Value>{all, call.made(""), call.made("")}
                                                            : std::vector<Value>{call.made(""), call.made(""), all});
  }
  return Value::tuple(call.in.meter(), {call.made(std::string(text.substr(0, at))), separator,
                                        call.made(std::string(text.substr(at + by.size())))});
}

Value lines(Call call) {
  const Bound bound = call.bind({"keepends"});
  return call.list(split_lines(call.text(), truth(bound.get(0)) ? LineEnds::keep : LineEnds::drop));
}

// The part of a string that [start:stop] selects, and the code points before it.
struct Part {
  std::string_view text;
  std::int64_t before = 0;
  bool outside = false;  // start is after stop: nothing is found there, not even the empty string
};

Part part_of(const Call& call, const Bound& bound, std::size_t first) {
  const Text& whole = call.self.as_text();
  const auto size = static_cast<std::int64_t>(whole.length);
  const auto place = [&](std::size_t parameter, std::int64_t absent) {
    const Value value = bound.get(parameter);
    if (value.is_none()) return absent;
    const std::int64_t at = as_index(value);
    return at < 0 ? std::max<std::int64_t>(at, -size) + size : at;
  };
  const std::int64_t start = place(first, 0), stop = std::min(place(first + 1, size), size);
  if (start > stop) return {{}, 0, true};
  const std::size_t begin = byte_of(whole.value, static_cast<std::size_t>(start));
  const std::size_t end = byte_of(whole.value, static_cast<std::size_t>(stop));
  call.in.meter().step_bytes(whole.value.size());
  return {call.text().substr(begin, end - begin), start, false};
}

template <Side side>
bool has_affix(std::string_view text, std::string_view affix) {
  return side == Side::left ? text.starts_with(affix) : text.ends_with(affix);
}

template <Side side>
Value affixed(Call call) {
  const Bound bound = call.bind({"prefix", "start", "end"}, 1);
  const Part part = part_of(call, bound, 1);
  const Value affix = bound.get(0);
  const auto has = [&](const Value& one) {
    if (!one.is_string()) {
      require_defined(one);
      throw TemplateError(fmt::format("{} first arg must be str or a tuple of str, not {}", call.name, type_name(one)));
    }
    return !part.outside && has_affix<side>(part.text, one.string());
  };
  if (!affix.is(Kind::tuple)) return Value(has(affix));
  return Value(std::any_of(affix.items().begin(), affix.items().end(), has));
}

template <Side side>
Value without_affix(Call call) {
  const Bound bound = call.bind({"affix"}, 1);
  const Value affix = bound.get(0);
  const std::string_view text = call.text(), gone = as_string(affix);
  if (gone.empty() || !has_affix<side>(text, gone)) return call.made(std::string(text));
  return call.made(
      std::string(side == Side::left ? text.substr(gone.size()) : text.substr(0, text.size() - gone.size())));
}

enum class Absent { is_minus_one, is_error };

template <Side side, Absent absent>
Value found(Call call) {
  const Bound bound = call.bind({"sub", "start", "end"}, 1);
  const Value wanted = bound.get(0);
  const std::string_view what = as_string(wanted);
  const Part part = part_of(call, bound, 1);
  call.in.meter().step_bytes(part.text.size());
  const std::size_t at = part.outside         ? std::string_view::npos
                         : side == Side::left ? part.text.find(what)
                                              : part.text.rfind(what);
  if (at != std::string_view::npos)
    return Value(part.before + static_cast<std::int64_t>(count_code_points(part.text.substr(0, at))));
  if (absent == Absent::is_error) throw TemplateError("substring not found");
  return Value(std::int64_t{-1});
}

Value counted(Call call) {
  const Bound bound = call.bind({"sub", "start", "end"}, 1);
  const Value wanted = bound.get(0);
  const std::string_view what = as_string(wanted);
  const Part part = part_of(call, bound, 1);
  if (part.outside) return Value(std::int64_t{0});
  if (what.empty()) return Value(static_cast<std::int64_t>(count_code_points(part.text)) + 1);
  return Value(count(part.text, what));
}

Value replaced(Call call) {
  const Bound bound = call.bind({"old", "new", "count"}, 2);
  const Value from = bound.get(0), to = bound.get(1);
  as_string(from), as_string(to);
  CallArguments arguments{{from, to}, {}};
  if (bound.has(2)) arguments.positional.push_back(bound.get(2));
  return call.in.apply_filter("replace", call.self, std::move(arguments));
}

Value joined(Call call) {
  const Bound bound = call.bind({"iterable"}, 1);
  const std::vector<Value> items = iterate(call.in.meter(), bound.get(0));
  std::string result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string())
      throw TemplateError(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    call.in.meter().expect(result.size() + call.text().size() + items[i].string().size());
    call.in.meter().step_bytes(call.text().size());
    if (i > 0) result += call.text();
    result += items[i].string();
  }
  return call.made(std::move(result));
}

enum class Padding { left, right, center };

template <Padding padding>
Value justified(Call call) {
  const Bound bound = call.bind({"width", "fillchar"}, 1);
  const std::int64_t width = as_index(bound.get(0));
  const Value fill = bound.get(1, call.in.text(" "));
  if (as_string(fill).empty() || fill.as_text().length != 1)
    throw TemplateError("The fill character must be exactly one character long");
  const auto size = static_cast<std::int64_t>(call.self.as_text().length);
  if (width <= size) return call.self;
  const auto missing = static_cast<std::size_t>(width - size);
  if (missing > call.in.meter().limits().max_value_bytes / 4) call.in.meter().expect(missing);
  call.in.meter().expect(missing * fill.string().size() + call.text().size());
  const auto filling = [&](std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += fill.string();
    return text;
  };
  // CPython puts the odd one to the left when the width is odd.
  const std::size_t left = padding == Padding::left    ? 0
                           : padding == Padding::right ? missing
                                                       : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  return call.made(filling(left) + std::string(call.text()) + filling(missing - left));
}

Value zero_filled(Call call) {
  const Bound bound = call.bind({"width"}, 1);
  const std::int64_t width = as_index(bound.get(0));
  const auto size = static_cast<std::int64_t>(call.self.as_text().length);
  if (width <= size) return call.self;
  const auto missing = static_cast<std::size_t>(width - size);
  call.in.meter().expect(missing);
  const bool sign = call.text().starts_with('-') || call.text().starts_with('+');
  return call.made(std::string(call.text().substr(0, sign)) + std::string(missing, '0') +
                   std::string(call.text().substr(sign)));
}

Value tabs_expanded(Call call) {
  const Bound bound = call.bind({"tabsize"});
  const std::int64_t size = bound.has(0) ? as_index(bound.get(0)) : 8;
  if (size > 1000) throw TemplateError("a tab of more than max_tab_columns = 1000 columns");
  std::string result;
  std::int64_t column = 0;
  for (const char c : call.text()) {
    call.in.meter().expect(result.size() + 1000);
    if (c == '\t') {
      const std::int64_t width = size > 0 ? size - column % size : 0;
      result.append(static_cast<std::size_t>(width), ' ');
      column += width;
    } else {
      result += c;
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
  }
  return call.made(std::move(result));
}

// str.format(): fields by position and name, with attributes, items, !r and format specifications.
class Formatter {
 public:
  Formatter(Interpreter& in, CallArguments arguments) : in_(in), arguments_(std::move(arguments)) {}

  std::string format(std::string_view text, int depth = 2) {
    if (depth < 0) throw TemplateError("Max string recursion exceeded");
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      put(result, text.substr(at, brace - at));
      at = brace;
      if (at == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        result += text[at];
        at += 2;
      } else if (text[at] == '}') {
        throw TemplateError("Single '}' encountered in format string");
      } else {
        const std::size_t end = closing(text, at + 1);
        put(result, field(text.substr(at + 1, end - at - 1), depth));
        at = end + 1;
      }
    }
    return result;
  }

 private:
  void put(std::string& result, std::string_view text) {
    in_.meter().step_bytes(text.size());
    in_.meter().expect(result.size() + text.size());
    result += text;
  }

  static std::size_t closing(std::string_view text, std::size_t at) {
    int open = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    throw TemplateError("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    std::size_t end = text.find_first_of(":!");
    if (const std::size_t bracket = text.find('['); bracket < end) {
      const std::size_t close = text.find(']', bracket);
      if (close != std::string_view::npos) end = text.find_first_of(":!", close);
    }
    Value value = look_up(text.substr(0, end));
    std::string_view rest = end == std::string_view::npos ? std::string_view() : text.substr(end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        throw TemplateError("expected ':' after conversion specifier");
      if (rest[1] != 'r' && rest[1] != 's' && rest[1] != 'a')
        throw TemplateError(fmt::format("Unknown conversion specifier '{}'", rest[1]));
      value = in_.text(rest[1] == 's' ? to_text(in_.meter(), value) : to_repr(in_.meter(), value));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    return format_spec(in_.meter(), value, format(rest, depth - 1));
  }

  Value look_up(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const std::size_t stop = std::min(name.find_first_of(".[", 1), name.size());
        if (stop == 1) throw TemplateError("Empty attribute in format string");
        value = in_.attribute(value, name.substr(1, stop - 1));
        name.remove_prefix(stop);
      } else if (name[0] == '[') {
        const std::size_t close = name.find(']');
        if (close == std::string_view::npos) throw TemplateError("Missing ']' in format string");
        const std::string_view key = name.substr(1, close - 1);
        std::int64_t number = 0;
        const bool whole =
            std::from_chars(key.data(), key.data() + key.size(), number).ptr == key.data() + key.size() && !key.empty();
        value = in_.subscript(value, whole && key[0] != '-' ? Value(number) : in_.text(std::string(key)));
        name.remove_prefix(close + 1);
      } else {
        throw TemplateError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t number = 0;
    if (name.empty()) {
      number = next_++;
    } else if (std::from_chars(name.data(), name.data() + name.size(), number).ptr != name.data() + name.size()) {
      for (const auto& [key, value] : arguments_.keyword)
        if (key == name) return value;
      throw TemplateError(in_quotes(name));
    }
    if (number >= arguments_.positional.size())
      throw TemplateError(fmt::format("Replacement index {} out of range for positional args tuple", number));
    return arguments_.positional[number];
  }

  Interpreter& in_;
  CallArguments arguments_;
  std::size_t next_ = 0;
};

Value formatted(Call call) {
  return call.made(Formatter(call.in, std::move(call.arguments)).format(call.text()));
}

using MethodPointer = Value (*)(Call);

MethodPointer find_method(std::string_view name) {
  static const std::map<std::string_view, MethodPointer> kMethods = {
      {"capitalize", mapped<capitalize>},
      {"casefold", mapped<lower>},
      {"center", justified<Padding::center>},
      {"count", counted},
      {"endswith", affixed<Side::right>},
      {"expandtabs", tabs_expanded},
      {"find", found<Side::left, Absent::is_minus_one>},
      {"format", formatted},
      {"index", found<Side::left, Absent::is_error>},
      {"isalnum", all_are<CharClass::alnum>},
      {"isalpha", all_are<CharClass::alpha>},
      {"isascii", all_are<CharClass::ascii>},
      {"isdecimal", all_are<CharClass::decimal>},
      {"isdigit", all_are<CharClass::digit>},
      {"isidentifier", all_are<CharClass::identifier>},
      {"islower", all_are<CharClass::lower>},
      {"isnumeric", all_are<CharClass::numeric>},
      {"isprintable", all_are<CharClass::printable>},
      {"isspace", all_are<CharClass::space>},
      {"istitle", all_are<CharClass::title>},
      {"isupper", all_are<CharClass::upper>},
      {"join", joined},
      {"ljust", justified<Padding::left>},
      {"lower", mapped<lower>},
      {"lstrip", stripped<Side::left>},
      {"partition", partitioned<Side::left>},
      {"removeprefix", without_affix<Side::left>},
      {"removesuffix", without_affix<Side::right>},
      {"replace", replaced},
      {"rfind", found<Side::right, Absent::is_minus_one>},
      {"rindex", found<Side::right, Absent::is_error>},
      {"rjust", justified<Padding::right>},
      {"rpartition", partitioned<Side::right>},
      {"rsplit", split_up<Side::right>},
      {"rstrip", stripped<Side::right>},
      {"split", split_up<Side::left>},
      {"splitlines", lines},
      {"startswith", affixed<Side::left>},
      {"strip", stripped<Side::both>},
      {"swapcase", mapped<swap_case>},
      {"title", mapped<title>},
      {"upper", mapped<upper>},
      {"zfill", zero_filled},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace

bool is_string_method(std::string_view name) {
  return find_method(name) != nullptr;
}

Value call_string_method(Interpreter& in, const Value& self, std::string_view name, CallArguments arguments) {
  in.meter().step_bytes(self.string().size());
  return find_method(name)(Call{in, self, name, std::move(arguments)});
}

}  // namespace heddle::jinja

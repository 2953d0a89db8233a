#include "text/chat_template/pretty_print.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

constexpr std::int64_t kWidth = 80;

bool key_before(Meter& meter, const Value& a, const Value& b) {
  try {
    return less(meter, a, b);
  } catch (const TemplateError&) {
    if (type_name(a) == type_name(b)) throw;
    return type_name(a) < type_name(b);
  }
}

// The same value, with the members of every dict sorted by key.
Value in_order(Meter& meter, const Value& value) {
  const Level level(meter);
  if (value.is(Kind::dict)) {
    Dict::Members members = value.dict().members;
    std::stable_sort(members.begin(), members.end(),
                     [&](const auto& a, const auto& b) { return key_before(meter, a.first, b.first); });
    for (auto& member : members) member.second = in_order(meter, member.second);
    return Dict::make(meter, std::move(members));
  }
  if (!value.is(Kind::list) && !value.is(Kind::tuple)) return value;
  std::vector<Value> items = value.items();
  for (Value& item : items) item = in_order(meter, item);
  return value.is(Kind::list) ? Value::list(meter, std::move(items)) : Value::tuple(meter, std::move(items));
}

std::int64_t columns(std::string_view text) {
  return static_cast<std::int64_t>(count_code_points(text));
}

// Words with the white space after them: the matches of \S*\s*.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    std::size_t end = 0;
    for (const bool space : {false, true})
      while (end < text.size() && is_space(code_point(text, end)) == space) end += code_point_size(text, end);
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// `indent`: the column where a value begins; `allowance`: columns that the closing brackets need.
class PrettyPrinter {
 public:
  explicit PrettyPrinter(Meter& meter) : meter_(meter) {}

  std::string take() { return std::move(out_); }

  void print(const Value& value, std::int64_t indent, std::int64_t allowance, int level = 0) {
    const Level nested(meter_);
    const std::string repr = to_repr(meter_, value);
    if (columns(repr) <= kWidth - indent - allowance) return put(repr);
    ++level;
    if (value.is(Kind::dict)) return members(value.dict(), indent, allowance, level);
    if (value.is(Kind::list)) return elements("[", value.items(), "]", indent, allowance, level);
    if (value.is(Kind::tuple))
      return elements("(", value.items(), value.items().size() == 1 ? ",)" : ")", indent, allowance, level);
    if (value.is_string() && !value.as_text().markup && !value.string().empty())
      return string(value.string(), indent, allowance, level);
    put(repr);
  }

 private:
  void put(std::string_view text) {
    meter_.step_bytes(text.size());
    meter_.expect(out_.size() + text.size());
    out_ += text;
  }
  void new_line(std::int64_t indent) { put("\n" + std::string(static_cast<std::size_t>(indent), ' ')); }

  void members(const Dict& dict, std::int64_t indent, std::int64_t allowance, int level) {
    put("{");
    for (std::size_t i = 0; i < dict.members.size(); ++i) {
      const auto& [key, value] = dict.members[i];
      const bool last = i + 1 == dict.members.size();
      const std::string name = to_repr(meter_, key) + ": ";
      put(name);
      print(value, indent + 1 + columns(name), last ? allowance + 1 : 1, level);
      if (last) break;
      put(",");
      new_line(indent + 1);
    }
    put("}");
  }

  void elements(std::string_view open, const std::vector<Value>& items, std::string_view close, std::int64_t indent,
                std::int64_t allowance, int level) {
    put(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool last = i + 1 == items.size();
      print(items[i], indent + 1, last ? allowance + columns(close) : 1, level);
      if (last) break;
      put(",");
      new_line(indent + 1);
    }
    put(close);
  }

  // As Python writes a long literal: pieces one below the other, in parentheses at the top level.
  void string(std::string_view text, std::int64_t indent, std::int64_t allowance, int level) {
    meter_.step(text.size());
    const bool outermost = level == 1;
    if (outermost) ++indent, ++allowance;
    const std::int64_t most = kWidth - indent;
    std::vector<std::string> pieces;
    const std::vector<std::string_view> lines = split_lines(text, LineEnds::keep);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool last_line = i + 1 == lines.size();
      std::string repr = in_quotes(lines[i]);
      if (columns(repr) <= (last_line ? most - allowance : most)) {
        pieces.push_back(std::move(repr));
        continue;
      }
      const std::vector<std::string_view> words = words_of(lines[i]);
      std::string current;
      for (std::size_t j = 0; j < words.size(); ++j) {
        const bool last_word = last_line && j + 1 == words.size();
        std::string candidate = current + std::string(words[j]);
        if (columns(in_quotes(candidate)) > (last_word ? most - allowance : most)) {
          if (!current.empty()) pieces.push_back(in_quotes(current));
          current = words[j];
        } else {
          current = std::move(candidate);
        }
      }
      if (!current.empty()) pieces.push_back(in_quotes(current));
    }
    const bool brackets = outermost && pieces.size() > 1;
    if (brackets) put("(");
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) new_line(indent);
      put(pieces[i]);
    }
    if (brackets) put(")");
  }

  Meter& meter_;
  std::string out_;
};

}  // namespace

std::string pretty_print(Meter& meter, const Value& value) {
  PrettyPrinter printer(meter);
  printer.print(in_order(meter, value), 0, 0);
  return printer.take();
}

}  // namespace heddle::jinja

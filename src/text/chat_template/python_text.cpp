#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

// Writes values into one string, within the limits of the meter.
class Writer {
 public:
  explicit Writer(Meter& meter) : meter_(meter) {}

  std::string take() { return std::move(out_); }

  void repr(const Value& value) {
    const Level level(meter_);
    meter_.step();
    switch (value.kind()) {
      case Kind::undefined:
        return put("Undefined");
      case Kind::none:
        return put("None");
      case Kind::boolean:
        return put(value.boolean() ? "True" : "False");
      case Kind::integer:
        return put(fmt::format("{}", value.integer()));
      case Kind::real:
        return put(real_text(value.real()));
      case Kind::string:
        put(value.as_text().markup ? "Markup(" : "");
        put(in_quotes(value.string()));
        return put(value.as_text().markup ? ")" : "");
      case Kind::list:
        return sequence("[", value.items(), "]");
      case Kind::tuple:
        return sequence("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      case Kind::dict:
        return members(value.dict());
      case Kind::view:
        put(type_name(value));
        return sequence("([", iterate(meter_, value), "])");
      case Kind::range: {
        const Range& range = value.object<Range>();
        return put(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                                   : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
      }
      case Kind::name_space: {
        put("<Namespace {");
        std::string_view comma;
        for (const auto& [name, attribute] : value.object<Namespace>().attributes) {
          put(comma);
          put(in_quotes(name));
          put(": ");
          repr(attribute);
          comma = ", ";
        }
        return put("}>");
      }
      case Kind::loop:
        return put(loop_text(meter_, value));
      case Kind::macro:
        return put(fmt::format("<Macro {}>", macro_name(value)));
      default:
        return put(fmt::format("<{} object>", type_name(value)));
    }
  }

  void json(const Value& value, const JsonStyle& style, int depth) {
    const Level level(meter_);
    meter_.step();
    switch (value.kind()) {
      case Kind::none:
        return put("null");
      case Kind::boolean:
        return put(value.boolean() ? "true" : "false");
      case Kind::integer:
        return put(fmt::format("{}", value.integer()));
      case Kind::real:
        return json_number(value.real());
      case Kind::string:
        return json_string(value.string(), style.escape);
      case Kind::list:
      case Kind::tuple: {
        if (value.items().empty()) return put("[]");
        put("[");
        bool first = true;
        for (const Value& item : value.items()) {
          if (!first) put(*style.item_separator);
          first = false;
          new_line(style, depth + 1);
          json(item, style, depth + 1);
        }
        new_line(style, depth);
        return put("]");
      }
      case Kind::dict:
        return json_object(value.dict(), style, depth);
      default:
        throw TemplateError(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

 private:
  void put(std::string_view text) {
    meter_.step_bytes(text.size());
    meter_.expect(out_.size() + text.size());
    out_ += text;
  }

  void sequence(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    put(open);
    std::string_view comma;
    for (const Value& item : items) {
      put(comma);
      repr(item);
      comma = ", ";
    }
    put(close);
  }

  void members(const Dict& dict) {
    put("{");
    std::string_view comma;
    for (const auto& [key, value] : dict.members) {
      put(comma);
      repr(key);
      put(": ");
      repr(value);
      comma = ", ";
    }
    put("}");
  }

  void new_line(const JsonStyle& style, int depth) {
    if (!style.indent) return;
    put("\n");
    for (int i = 0; i < depth; ++i) put(*style.indent);
  }

  void json_number(double value) {
    put(std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : real_text(value));
  }

  void json_string(std::string_view text, JsonStyle::Escape escape) {
    std::string result = "\"";
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = code_point_size(text, at);
      const auto c = static_cast<std::uint32_t>(code_point(text, at));
      if (c == '"' || c == '\\')
        (result += '\\') += static_cast<char>(c);
      else if (c == '\n')
        result += "\\n";
      else if (c == '\r')
        result += "\\r";
      else if (c == '\t')
        result += "\\t";
      else if (c == '\b')
        result += "\\b";
      else if (c == '\f')
        result += "\\f";
      else if (c < 0x20 || (escape == JsonStyle::Escape::ascii && c >= 0x7F && c < 0x10000))
        result += fmt::format("\\u{:04x}", c);
      else if (escape == JsonStyle::Escape::ascii && c >= 0x10000)
        result += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
      else
        result += text.substr(at, size);
      at += size;
    }
    put(result += '"');
  }

  void json_key(const Value& key, const JsonStyle& style) {
    switch (key.kind()) {
      case Kind::string:
        return json_string(key.string(), style.escape);
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        put("\"");
        json(key, style, 0);
        return put("\"");
      default:
        throw TemplateError(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void json_object(const Dict& dict, const JsonStyle& style, int depth) {
    if (dict.members.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style.keys == JsonStyle::Keys::sorted) {
      for (const auto* member : members)
        less(meter_, member->first, members.front()->first);  // throws when they cannot be compared
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto* a, const auto* b) { return less(meter_, a->first, b->first); });
    }
    put("{");
    bool first = true;
    for (const auto* member : members) {
      if (!first) put(*style.item_separator);
      first = false;
      new_line(style, depth + 1);
      json_key(member->first, style);
      put(*style.key_separator);
      json(member->second, style, depth + 1);
    }
    new_line(style, depth);
    put("}");
  }

  Meter& meter_;
  std::string out_;
};

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_text(Meter& meter, const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      meter.step_bytes(value.string().size());
      return std::string(value.string());
    case Kind::undefined:
      return "";
    default:
      return to_repr(meter, value);
  }
}

std::string to_repr(Meter& meter, const Value& value) {
  Writer writer(meter);
  writer.repr(value);
  return writer.take();
}

std::string to_json(Meter& meter, const Value& value, const JsonStyle& style) {
  JsonStyle complete = style;
  if (!complete.item_separator) complete.item_separator = style.indent ? "," : ", ";
  if (!complete.key_separator) complete.key_separator = ": ";
  Writer writer(meter);
  writer.json(value, complete, 0);
  return writer.take();
}

}  // namespace heddle::jinja

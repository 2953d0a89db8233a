#include "text/chat_template/chat_template.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "text/chat_template/interpreter.h"
#include "text/chat_template/lexer.h"
#include "text/chat_template/parser.h"
#include "text/chat_template/text.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

jinja::Value to_value(jinja::Meter& meter, const ordered_json& json, int depth = 0) {
  using jinja::Value;
  constexpr int kMaxDepth = 190;
  if (depth > kMaxDepth)
    throw jinja::TemplateError(fmt::format("variables nest deeper than max_variable_depth = {} levels", kMaxDepth));
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value(json.get<std::int64_t>());
    case ordered_json::value_t::number_unsigned:
      if (!std::in_range<std::int64_t>(json.get<std::uint64_t>()))
        throw jinja::TemplateError(
            fmt::format("variables hold the number {}, beyond 64 bits", json.get<std::uint64_t>()));
      return Value(json.get<std::int64_t>());
    case ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!jinja::valid_utf8(text)) throw jinja::TemplateError("variables hold text that is not valid UTF-8");
      return Value::text(&meter, text);
    }
    case ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const ordered_json& element : json) items.push_back(to_value(meter, element, depth + 1));
      return Value::list(meter, std::move(items));
    }
    case ordered_json::value_t::object: {
      jinja::Dict::Members members;
      members.reserve(json.size());
      for (const auto& [key, member] : json.items()) {
        if (!jinja::valid_utf8(key)) throw jinja::TemplateError("variables hold text that is not valid UTF-8");
        members.emplace_back(Value::text(&meter, key), to_value(meter, member, depth + 1));
      }
      return jinja::Dict::make(meter, std::move(members));
    }
    default:
      return {};
  }
}

std::tm now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

}  // namespace

struct ChatTemplate::State {
  std::string where;
  jinja::Template parsed;
};

ChatTemplate ChatTemplate::parse(std::string_view source, std::string where) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  if (source.size() > kMaxBytes)
    throw_error<InputError>("{}: a template of more than max_template_bytes = {} bytes", where, kMaxBytes);
  if (!jinja::valid_utf8(source)) throw_error<InputError>("{}: is not valid UTF-8", where);
  auto state = std::make_shared<State>();
  state->parsed = jinja::parse_template(source, where);
  state->where = std::move(where);
  return ChatTemplate(std::move(state));
}

std::string ChatTemplate::render(const ordered_json& variables, const RenderOptions& options) const {
  require(variables.is_object(), "ChatTemplate::render: variables must be an object");
  jinja::Meter meter(options.limits);
  std::map<std::string, jinja::Value, std::less<>> values;
  try {
    for (const auto& [name, value] : variables.items()) values.emplace(name, to_value(meter, value));
  } catch (const jinja::TemplateError& error) {
    throw_error<InputError>("{}: {}", state_->where, printable(error.what(), jinja::kMaxMessageBytes));
  }
  jinja::Interpreter interpreter(meter, state_->parsed, values, options.local_time ? *options.local_time : now());
  try {
    return interpreter.run();
  } catch (const jinja::TemplateError& error) {
    throw_error<InputError>("{}, line {}: {}", state_->where, interpreter.line(),
                            printable(error.what(), jinja::kMaxMessageBytes));
  }
}

}  // namespace heddle

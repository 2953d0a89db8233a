#include "random_schema.h"

#include <algorithm>
#include <regex>

#include "text/tokenizer/utf8.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

int below(Random& random, int end) {
  return static_cast<int>(random() % static_cast<unsigned>(end));
}

std::string random_text(Random& random, int length) {
  static const char32_t alphabet[] = {'a', 'b',  'z',  '"',  '\\',   '/',     '\n', '\t',
                                      1,   0x1F, 0x7F, 0xE9, 0x20AC, 0x1F600, ' ',  '{'};
  std::string text;
  for (int i = 0; i < length; ++i) append_utf8(text, alphabet[below(random, std::ssize(alphabet))]);
  return text;
}

struct Pattern {
  const char* expression;
  std::vector<std::string> texts;
};
const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all{{"^[a-c]{1,3}$", {"a", "cab"}},
                                        {"^x", {"x", "xyz"}},
                                        {"^(yes|no)!?$", {"yes", "no!"}},
                                        {"^[0-9]{3}-[0-9]{2}$", {"123-45"}}};
  return all;
}

Json schema_of_depth(Random& random, int depth) {
  switch (below(random, depth > 0 ? 11 : 7)) {
    case 0:
      return {{"type", "null"}};
    case 1:
      return {{"type", "boolean"}};
    case 2: {
      const int least = below(random, 400) - 200;
      return {{"type", "integer"}, {"minimum", least}, {"maximum", least + below(random, 300)}};
    }
    case 3: {
      const double least = (below(random, 4000) - 2000) / 8.0;
      return {{"type", "number"}, {"minimum", least}, {"exclusiveMaximum", least + 1 + below(random, 30) / 4.0}};
    }
    case 4: {
      const int least = below(random, 4);
      return {{"type", "string"}, {"minLength", least}, {"maxLength", least + below(random, 8)}};
    }
    case 5:
      return {{"type", "string"},
              {"pattern", patterns()[static_cast<std::size_t>(below(random, 4))].expression},
              {"maxLength", 8}};
    case 6:
      return {{"enum",
               {random_text(random, 3), below(random, 100), nullptr, random_text(random, 2), Json::array({1, "x"})}}};
    case 7: {
      const int least = below(random, 3);
      return {{"type", "array"},
              {"items", schema_of_depth(random, depth - 1)},
              {"minItems", least},
              {"maxItems", least + below(random, 3)}};
    }
    case 8: {
      Json schema = {{"type", "array"}, {"prefixItems", Json::array()}, {"items", false}};
      const int count = 1 + below(random, 3);
      for (int i = 0; i < count; ++i) schema["prefixItems"].push_back(schema_of_depth(random, depth - 1));
      schema["minItems"] = below(random, count + 1);
      return schema;
    }
    case 9:
      return {{"anyOf", Json::array({schema_of_depth(random, depth - 1), schema_of_depth(random, depth - 1)})}};
    default: {
      Json schema = {{"type", "object"},
                     {"properties", Json::object()},
                     {"required", Json::array()},
                     {"additionalProperties", false}};
      const int count = below(random, 5);
      for (int i = 0; i < count; ++i) {
        const std::string name = random_text(random, 2) + std::to_string(i);
        schema["properties"][name] = schema_of_depth(random, depth - 1);
        if (below(random, 2) == 0) schema["required"].push_back(name);
      }
      return schema;
    }
  }
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return value.type_name() == type;
}

bool within(const Json& schema, const char* least, const char* most, double size) {
  return (!schema.contains(least) || size >= schema[least].get<double>()) &&
         (!schema.contains(most) || size <= schema[most].get<double>());
}

bool object_satisfies(const Json& value, const Json& schema) {
  for (const Json& name : schema["required"])
    if (!value.contains(name.get<std::string>())) return false;
  return std::ranges::all_of(value.items(), [&](const auto& member) {
    return schema["properties"].contains(member.key()) && satisfies(member.value(), schema["properties"][member.key()]);
  });
}

bool array_satisfies(const Json& value, const Json& schema) {
  if (!within(schema, "minItems", "maxItems", static_cast<double>(value.size()))) return false;
  const std::size_t num_prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (std::size_t i = 0; i < value.size(); ++i)
    if (!satisfies(value[i], i < num_prefix ? schema["prefixItems"][i] : schema["items"])) return false;
  return true;
}

std::int64_t characters(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & '\xC0') != '\x80'; });
}

}  // namespace

Json random_schema(Random& random) {
  return schema_of_depth(random, 3);
}

Json random_value(Random& random, const Json& schema) {
  if (schema.contains("enum")) return schema["enum"][random() % schema["enum"].size()];
  if (schema.contains("anyOf")) return random_value(random, schema["anyOf"][random() % 2]);
  const std::string type = schema["type"];
  if (type == "null") return nullptr;
  if (type == "boolean") return random() % 2 == 0;
  if (type == "integer") {
    const int least = schema["minimum"];
    return least + below(random, schema["maximum"].get<int>() - least + 1);
  }
  if (type == "number") {
    const auto least = schema["minimum"].get<double>();
    return least + below(random, static_cast<int>((schema["exclusiveMaximum"].get<double>() - least) * 16)) / 16.0;
  }
  if (type == "string") {
    if (schema.contains("pattern")) {
      const auto known =
          std::ranges::find_if(patterns(), [&](const Pattern& one) { return schema["pattern"] == one.expression; });
      return known->texts[random() % known->texts.size()];
    }
    const int least = schema["minLength"];
    return random_text(random, least + below(random, schema["maxLength"].get<int>() - least + 1));
  }
  if (type == "array") {
    Json value = Json::array();
    const int least = schema["minItems"];
    const int most =
        schema.contains("prefixItems") ? static_cast<int>(schema["prefixItems"].size()) : schema["maxItems"].get<int>();
    const int count = least + below(random, most - least + 1);
    for (int i = 0; i < count; ++i)
      value.push_back(random_value(random, schema.contains("prefixItems")
                                               ? schema["prefixItems"][static_cast<std::size_t>(i)]
                                               : schema["items"]));
    return value;
  }
  Json value = Json::object();
  for (const auto& [name, member] : schema["properties"].items())
    if (random() % 2 == 0 || std::ranges::find(schema["required"], Json(name)) != schema["required"].end())
      value[name] = random_value(random, member);
  return value;
}

bool satisfies(const Json& value, const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("enum")) return std::ranges::find(schema["enum"], value) != schema["enum"].end();
  if (schema.contains("anyOf"))
    return std::ranges::any_of(schema["anyOf"], [&](const Json& one) { return satisfies(value, one); });
  if (!has_type(value, schema["type"])) return false;
  if (value.is_object()) return object_satisfies(value, schema);
  if (value.is_array()) return array_satisfies(value, schema);
  if (value.is_number())
    return within(schema, "minimum", "maximum", value.get<double>()) &&
           (!schema.contains("exclusiveMaximum") || value.get<double>() < schema["exclusiveMaximum"].get<double>());
  if (!value.is_string()) return true;
  const std::string text = value;
  return within(schema, "minLength", "maxLength", static_cast<double>(characters(text))) &&
         (!schema.contains("pattern") || std::regex_search(text, std::regex(schema["pattern"].get<std::string>())));
}

}  // namespace heddle::grammar

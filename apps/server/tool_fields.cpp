#include "server/tool_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "server/constraint_fields.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestName = 128;
constexpr std::size_t kShown = 64;
constexpr std::int32_t kMostCalls = 128;  // that are forced, in one answer

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
}

void check_tool(const Json& tool, std::size_t index) {
  const auto fail = [&](const char* what) { throw ApiError(400, fmt::format("tools[{}]{}", index, what), "tools"); };
  const auto type = tool.find("type");
  if (type == tool.end() || !type->is_string()) fail(": expected an object with a type");
  if (*type != "function")
    throw ApiError(501, fmt::format("tools[{}]: only tools of type function are implemented", index), "tools",
                   "not_implemented");
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) fail(".function: expected an object");
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) fail(".function.name: expected a text");
  const auto& text = name->get_ref<const std::string&>();
  if (text.empty() || text.size() > kLongestName || !std::ranges::all_of(text, is_name_character))
    fail(".function.name: expected 1 to 128 letters, digits and \"-_.\"");
  const auto parameters = function->find("parameters");
  if (parameters == function->end() || parameters->is_null()) return;
  if (!parameters->is_object()) fail(".function.parameters: expected a JSON schema");
  if (const auto kind = parameters->find("type"); kind != parameters->end() && *kind != "object")
    fail(".function.parameters: its type must be object");
}

// `reference` of a schema that has moved to `place`.
void move_reference(Json& reference, const std::string& place) {
  if (!reference.is_string()) return;
  const auto& text = reference.get_ref<const std::string&>();
  if (text.starts_with('#')) reference = "#" + place + text.substr(1);
}

// The references of a schema that stands at `place` of another one. Names of properties and constants are no keywords.
void move_references(Json& schema, const std::string& place) {
  if (schema.is_array())
    for (Json& element : schema) move_references(element, place);
  if (!schema.is_object()) return;
  for (auto& [keyword, value] : schema.items()) {
    if (keyword == "$ref") {
      move_reference(value, place);
    } else if (keyword == "properties" || keyword == "$defs" || keyword == "definitions") {
      if (value.is_object())
        for (auto& member : value.items()) move_references(member.value(), place);
    } else if (keyword != "enum" && keyword != "const" && keyword != "default" && keyword != "examples") {
      move_references(value, place);
    }
  }
}

Json call_schema(const Json& function, const std::string& key, const std::string& place) {
  Json parameters = Json::object();
  if (const auto given = function.find("parameters"); given != function.end() && given->is_object())
    parameters = *given;
  if (!parameters.contains("type")) parameters["type"] = "object";
  if (parameters.size() == 1) parameters["properties"] = Json::object();  // no parameters
  move_references(parameters, place + "/properties/" + key);
  return {{"type", "object"},
          {"properties", {{"name", {{"const", function.at("name")}}}, {key, std::move(parameters)}}},
          {"required", {"name", key}},
          {"additionalProperties", false}};
}

// Calls of the functions `names` alone.
grammar::GrammarSource calls_of(const std::vector<const Json*>& functions, ToolFormat format, bool several) {
  const bool tagged = format == ToolFormat::tagged;
  const std::string key = tagged ? "arguments" : "parameters";
  Json schema;
  if (functions.size() == 1) {
    schema = call_schema(*functions.front(), key, "");
  } else {
    schema["anyOf"] = Json::array();
    for (std::size_t i = 0; i < functions.size(); ++i)
      schema["anyOf"].push_back(call_schema(*functions[i], key, fmt::format("/anyOf/{}", i)));
  }
  grammar::GrammarSource source{.kind = grammar::GrammarSource::Kind::json_schema, .text = schema.dump()};
  if (tagged) source.frame = {.open = "<tool_call>\n", .close = "\n</tool_call>"};
  source.frame.separator = tagged ? "\n" : "; ";
  source.frame.most = several ? kMostCalls : 1;
  return source;
}

// The function that a tool_choice names.
std::string named_function(const JsonField& choice) {
  constexpr const char* kExpected =
      "\"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  if (!choice.is_object()) choice.fail_expected(kExpected);
  const std::string type = choice.at("type").text();
  if (type == "allowed_tools" || type == "custom")
    throw ApiError(501, fmt::format("tool_choice: the type {} is not implemented", type), "tool_choice",
                   "not_implemented");
  if (type != "function") choice.fail_expected(kExpected);
  return choice.at("function").at("name").text();
}

void force_calls(const std::optional<std::string>& name, ToolFormat format, GenerationRequest& request) {
  std::vector<const Json*> functions;
  for (const Json& tool : request.conversation.tools)
    if (const Json& function = tool.at("function"); !name || function.at("name") == *name)
      functions.push_back(&function);
  if (functions.empty())
    throw ApiError(400,
                   name ? fmt::format("tool_choice: no tool has the name \"{}\"", printable(*name, kShown))
                        : std::string("tool_choice: there are no tools"),
                   "tool_choice");
  request.tool_choice = ToolChoice::forced;
  request.tool_format = format == ToolFormat::none ? ToolFormat::json : format;
  if (name) request.parallel_tool_calls = false;
  set_form("tool_choice", calls_of(functions, request.tool_format, request.parallel_tool_calls), request);
  request.grammar_field = "tools";  // where the schemas are
}

}  // namespace

void read_tool_fields(RequestFields& fields, ToolFormat format, GenerationRequest& request) {
  const Json& tools = request.conversation.tools;
  for (std::size_t i = 0; i < tools.size(); ++i) check_tool(tools[i], i);
  if (!tools.empty()) request.tool_format = format;
  fields.read("parallel_tool_calls", [&](const JsonField& field) { request.parallel_tool_calls = field.boolean(); });
  fields.read("tool_choice", [&](const JsonField& field) {
    const std::string choice = field.is_string() ? field.text() : std::string();
    if (choice == "none") {
      request.tool_choice = ToolChoice::none;
      request.tool_format = ToolFormat::none;
    } else if (choice == "required") {
      force_calls(std::nullopt, format, request);
    } else if (choice != "auto") {
      force_calls(named_function(field), format, request);
    }
  });
}

}  // namespace heddle::server

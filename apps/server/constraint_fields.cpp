#include "server/constraint_fields.h"

#include <utility>

namespace heddle::server {
namespace {

using grammar::GrammarSource;

constexpr int kMostChoices = 1024;

// A schema is an object, or its text.
GrammarSource schema_of(const nlohmann::ordered_json& schema, const char* field) {
  if (!schema.is_object() && !schema.is_boolean() && !schema.is_string())
    throw ApiError(400, fmt::format("{}: expected a JSON schema", field), field);
  return {.kind = GrammarSource::Kind::json_schema,
          .text = schema.is_string() ? schema.get<std::string>() : schema.dump()};
}

GrammarSource choices_of(const JsonField& list) {
  GrammarSource source{.kind = GrammarSource::Kind::choice};
  for (const JsonField& choice : list.elements()) {
    if (std::ssize(source.choices) == kMostChoices) list.fail("more than 1024 choices");
    source.choices.push_back(choice.text());
  }
  if (source.choices.empty()) list.fail("no choice");
  return source;
}

void read_response_format(const JsonField& field, const nlohmann::ordered_json& ordered, GenerationRequest& request) {
  const std::string type = field.at("type").text();
  if (type == "json_object") {
    set_form("response_format", {.kind = GrammarSource::Kind::json_object}, request);
  } else if (type == "json_schema") {
    if (!field.at("json_schema").is_object()) field.at("json_schema").fail_expected("an object");
    field.at("json_schema").at("schema");
    set_form("response_format",
             schema_of(ordered.at("response_format").at("json_schema").at("schema"), "response_format"), request);
  } else if (type != "text") {
    field.at("type").fail_expected("\"text\", \"json_object\" or \"json_schema\"");
  }
}

void read_structured_outputs(const JsonField& field, const nlohmann::ordered_json& ordered,
                             GenerationRequest& request) {
  constexpr const char* kName = "structured_outputs";
  for (const auto& [name, value] : field.members()) {
    if (value.value().is_null()) continue;
    if (name == "json")
      set_form(kName, schema_of(ordered.at(kName).at("json"), kName), request);
    else if (name == "regex")
      set_form(kName, {.kind = GrammarSource::Kind::regex, .text = value.text()}, request);
    else if (name == "choice")
      set_form(kName, choices_of(value), request);
    else if (name == "json_object" && value.boolean())
      set_form(kName, {.kind = GrammarSource::Kind::json_object}, request);
    else if (name != "json_object")
      throw ApiError(501, "structured_outputs: only json, json_object, regex and choice are implemented", kName,
                     "not_implemented");
  }
}

}  // namespace

void set_form(const char* field, GrammarSource source, GenerationRequest& request) {
  if (request.grammar) throw ApiError(400, fmt::format("{}: the request asks for another form, too", field), field);
  request.grammar = std::move(source);
  request.grammar_field = field;
}

void read_constraint_fields(RequestFields& fields, const nlohmann::ordered_json& ordered, GenerationRequest& request) {
  fields.read("response_format", [&](const JsonField& field) { read_response_format(field, ordered, request); });
  fields.read("structured_outputs", [&](const JsonField& field) { read_structured_outputs(field, ordered, request); });
  fields.read("guided_json", [&](const JsonField&) {
    set_form("guided_json", schema_of(ordered.at("guided_json"), "guided_json"), request);
  });
  fields.read("guided_regex", [&](const JsonField& field) {
    set_form("guided_regex", {.kind = GrammarSource::Kind::regex, .text = field.text()}, request);
  });
  fields.read("guided_choice", [&](const JsonField& field) { set_form("guided_choice", choices_of(field), request); });
  fields.refuse("guided_grammar", "give a JSON schema, a regular expression or choices");
}

}  // namespace heddle::server

#include "server/constraint_fields.h"

namespace heddle::server {
namespace {

[[noreturn]] void refuse_form(const char* field, const std::string& form) {
  throw ApiError(501, fmt::format("{}: answers of the form {} are not implemented", field, form), field,
                 "not_implemented");
}

void read_tool_choice(const JsonField& field, GenerationRequest& request) {
  if (!field.is_string()) {
    if (!field.is_object()) field.fail_expected("\"none\", \"auto\", \"required\" or an object that names a function");
    refuse_form("tool_choice", "of a call of a given function");
  }
  const std::string choice = field.text();
  if (choice == "required") refuse_form("tool_choice", "\"required\"");
  if (choice == "none")
    request.tool_choice = ToolChoice::none;
  else if (choice != "auto")
    field.fail_expected("\"none\", \"auto\", \"required\" or an object that names a function");
}

}  // namespace

void read_constraint_fields(RequestFields& fields, GenerationRequest& request) {
  fields.read("response_format", [](const JsonField& field) {
    const std::string type = field.at("type").text();
    if (type == "text") return;
    if (type != "json_object" && type != "json_schema")
      field.at("type").fail_expected("\"text\", \"json_object\" or \"json_schema\"");
    refuse_form("response_format", type);
  });
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"})
    fields.refuse(name, "answers of a given form are not implemented");
  if (request.chat) fields.read("tool_choice", [&](const JsonField& field) { read_tool_choice(field, request); });
}

}  // namespace heddle::server

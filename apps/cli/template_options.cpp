#include "cli/template_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "engine/model_template.h"

namespace heddle {

void add_template_options(CLI::App& command, TemplateOptions& options) {
  command.add_option("--chat-template", options.file, "Jinja template instead of the model's own")->type_name("FILE");
  command.add_option("--set", options.assignments, "A variable of the template, for example enable_thinking=false")
      ->type_name("NAME=JSON")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

ModelChatTemplate load_template(const std::string& model, const TemplateOptions& options) {
  if (options.file) return load_model_chat_template(model, *options.file);
  try {
    return load_model_chat_template(model);
  } catch (const InputError& error) {
    throw_error<InputError>("{}; give one with --chat-template FILE", error.what());
  }
}

nlohmann::ordered_json assigned_variables(const TemplateOptions& options) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const std::string& assignment : options.assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error<InputError>("--set {}: expected NAME=JSON", shorten(assignment));
    const std::string name = assignment.substr(0, equals);
    variables[name] = parse_ordered_json(assignment.substr(equals + 1), "--set " + name);
  }
  return variables;
}

TemplateInput read_conversation(const std::string& file) {
  constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  const InputText input = read_input(file, kMaxBytes);
  return parse_template_input(input.text, input.where);
}

}  // namespace heddle

#include "cli/template_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/output.h"
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
    std::string_view what = error.what();
    if (what.ends_with('.')) what.remove_suffix(1);  // of Jinja's own sentences
    throw_error<InputError>("{}; give one with --chat-template FILE", what);
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
  const InputText input = read_input(file, kMaxConversationBytes);
  return parse_template_input(input.text, input.where);
}

bool warn_of_tools_left_out(const ModelChatTemplate& chat_template, const TemplateInput& input, const std::string& text,
                            const std::string& where) {
  if (input.tools.empty()) return false;
  TemplateInput without = input;
  without.tools = nullptr;
  try {
    if (chat_template.render(without) != text) return false;
  } catch (const InputError&) {  // a template that asks for them
    return false;
  }
  write_stderr(fmt::format("heddle: warning: {}: the model's chat template leaves \"tools\" out\n", where));
  return true;
}

}  // namespace heddle

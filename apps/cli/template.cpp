// heddle template: what the model's chat template makes of a conversation, byte for byte.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "engine/model_template.h"

namespace heddle {
namespace {

struct TemplateCommandOptions {
  std::string model;
  std::string file;
  bool no_generation_prompt = false;
  std::vector<std::string> set;
};

// "NAME=JSON" of each --set.
void set_variables(const TemplateCommandOptions& options, TemplateInput& conversation) {
  for (const std::string& setting : options.set) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error<InputError>("--set {}: expected NAME=JSON", shorten(setting));
    const std::string name = setting.substr(0, equals);
    conversation.extra[name] = parse_ordered_json(setting.substr(equals + 1), "--set " + name);
  }
}

void run(const TemplateCommandOptions& options) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
  TemplateInput conversation = parse_template_input(read_file(options.file, kMaxBytes), options.file);
  if (conversation.messages.empty())
    throw_error<InputError>("{}: cannot apply a chat template to an empty conversation; give at least one message",
                            options.file);
  conversation.add_generation_prompt = !options.no_generation_prompt;
  set_variables(options, conversation);
  write_stdout(load_model_chat_template(options.model).render(conversation));
}

}  // namespace

void add_template(CLI::App& app) {
  const auto options = std::make_shared<TemplateCommandOptions>();
  CLI::App* command = app.add_subcommand("template", "Print a conversation as the model's chat template writes it");
  command->add_option("--model", options->model, "Folder with tokenizer_config.json, or synth:NAME")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--file", options->file,
                   "JSON: an array of messages, or {\"messages\": [...], \"tools\": [...], \"documents\": [...]}")
      ->required()
      ->type_name("FILE");
  command->add_flag("--no-generation-prompt", options->no_generation_prompt,
                    "Without the beginning of the answer that the model is to give");
  command->add_option("--set", options->set, "A variable of the template, for example enable_thinking=false")
      ->type_name("NAME=JSON")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->callback([options] { run(*options); });
}

}  // namespace heddle

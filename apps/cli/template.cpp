// heddle template: formats a conversation with the model's chat template, byte for byte.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/template_options.h"

namespace heddle {
namespace {

struct TemplateCommandOptions {
  std::string model;
  std::optional<std::string> file;
  bool no_generation_prompt = false;
  TemplateOptions chat_template;
};

void run(const TemplateCommandOptions& options) {
  const InputText input =
      given_input(options.file, kMaxConversationBytes, "--file or a conversation on standard input");
  TemplateInput conversation = parse_template_input(input.text, input.where);
  if (conversation.messages.empty())
    throw_error<InputError>("{}: cannot apply a chat template to an empty conversation; give at least one message",
                            input.where);
  conversation.add_generation_prompt = !options.no_generation_prompt;
  conversation.extra = assigned_variables(options.chat_template);
  const ModelChatTemplate chat_template = load_template(options.model, options.chat_template);
  const std::string text = chat_template.render(conversation);
  warn_of_tools_left_out(chat_template, conversation, text, input.where);
  write_stdout(text);
}

}  // namespace

void add_template(CLI::App& app) {
  const auto options = std::make_shared<TemplateCommandOptions>();
  CLI::App* command = app.add_subcommand("template", "Print a conversation as the model's chat template writes it");
  add_model_option(*command, options->model,
                   "Folder with tokenizer_config.json, ORG/NAME in the cache of Hugging Face, or synth:NAME");
  command
      ->add_option("--file", options->file,
                   "JSON: an array of messages, or {\"messages\": [...], \"tools\": [...], \"documents\": [...]}; - "
                   "is standard input, as is what is piped in without --file")
      ->type_name("FILE");
  command->add_flag("--no-generation-prompt", options->no_generation_prompt,
                    "Without the beginning of the answer that the model is to give");
  add_template_options(*command, options->chat_template);
  command->callback([options] { run(*options); });
}

}  // namespace heddle

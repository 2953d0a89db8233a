#include "cli/chat_renderer.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/model_template.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;

// Of all "NAME=JSON".
ordered_json variables_of(const ChatTemplateOptions& options) {
  ordered_json variables = ordered_json::object();
  for (const std::string& assignment : options.assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
      throw_error<InputError>("--set: \"{}\": expected NAME=JSON", assignment);
    const std::string name = assignment.substr(0, equals);
    const std::string value = assignment.substr(equals + 1);
    parse_json(value, "--set " + name);
    variables[name] = ordered_json::parse(value);
  }
  return variables;
}

ChatRenderer render_with_file(const Tokenizer& tokenizer, const std::string& file, const ordered_json& own) {
  ordered_json variables{{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", true}};
  if (const auto bos = tokenizer.bos_id()) variables["bos_token"] = tokenizer.token_text(*bos);
  if (const auto eos = tokenizer.eos_id()) variables["eos_token"] = tokenizer.token_text(*eos);
  variables.update(own);
  return [chat_template = ChatTemplate::parse(read_file(file, kMaxTemplateBytes), file),
          variables = std::move(variables)](const Conversation& conversation) {
    ordered_json all = variables;
    all["messages"] = conversation.messages();
    if (!conversation.tools().is_null()) all["tools"] = conversation.tools();
    return chat_template.render(all);
  };
}

ModelChatTemplate template_of(const std::string& model) {
  try {
    return load_model_chat_template(model);
  } catch (const InputError& error) {
    throw_error<InputError>("{}; give one with --chat-template FILE, or use heddle generate", error.what());
  }
}

}  // namespace

ChatRenderer make_chat_renderer(const Tokenizer& tokenizer, const ChatTemplateOptions& options) {
  ordered_json variables = variables_of(options);
  if (options.file) return render_with_file(tokenizer, *options.file, variables);
  return
      [chat_template = template_of(options.model), variables = std::move(variables)](const Conversation& conversation) {
        return chat_template.render(
            {.messages = conversation.messages(), .tools = conversation.tools(), .extra = variables});
      };
}

}  // namespace heddle

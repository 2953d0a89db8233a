// Input: a template; after a first zero byte the variables as a JSON object, else a conversation with a tool.
#include "text/chat_template/chat_template.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/target.h"
#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {
namespace {

constexpr std::string_view kVariables = R"({"messages": [{"role": "system", "content": " Be \"brief\" "},
  {"role": "user", "content": "caf\u00e9 <b> \ud83d\ude00\n1"}, {"role": "assistant", "content": null,
  "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": {"a": [1, -2.5, true]}}}]},
  {"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "7"}]}, {"role": "user", "content": ""}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "n": 3, "documents": null})";

RenderOptions options() {
  RenderOptions options;  // as deep as for a user, but small: each input should take milliseconds
  options.limits.max_steps = 100'000;
  options.limits.max_output_bytes = std::size_t{1} << 20;
  options.limits.max_value_bytes = std::size_t{4} << 20;
  options.local_time = std::tm{.tm_sec = 5, .tm_min = 4, .tm_hour = 3, .tm_mday = 2, .tm_mon = 0, .tm_year = 124};
  return options;
}

}  // namespace

void fuzz_chat_template(std::string_view input) {
  const auto [source, json] = split_at_zero(input);
  const std::string_view text = json.empty() ? kVariables : json;
  if (!accepts([&] { parse_json(text, "variables"); })) return;
  const auto variables = nlohmann::ordered_json::parse(text);
  if (!variables.is_object()) return;
  const std::string_view template_source = source;
  accepts([&] {
    const ChatTemplate chat_template = ChatTemplate::parse(template_source, "fuzz.jinja");
    expect(!find_invalid_utf8(template_source), "parse() took what is not UTF-8");
    const std::string rendered = chat_template.render(variables, options());
    expect(!find_invalid_utf8(rendered), "render() gave what is not UTF-8");
    expect(rendered.size() <= options().limits.max_output_bytes, "{} bytes of output", rendered.size());
    expect(rendered == chat_template.render(variables, options()), "two outputs of one template");
  });
}

}  // namespace heddle::fuzz

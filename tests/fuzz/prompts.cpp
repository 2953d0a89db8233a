// Input: a prompts file, one object per line.
#include "cli/generate/prompt.h"
#include "cli/jsonl.h"
#include "fuzz/target.h"

namespace heddle::fuzz {

void fuzz_prompts(std::string_view input) {
  // A line is a prompt, or an error that names it; nothing is thrown because of it.
  accepts([&] {
    for (const TextLine& line : split_lines(input, "prompts.jsonl")) {
      const Prompt prompt = parse_prompt(line.text, fmt::format("prompts.jsonl:{}", line.number), {});
      expect(prompt.error.empty() || prompt.error.starts_with(prompt.where), "{}: {}", prompt.where, prompt.error);
      expect(!prompt.error.empty() || !prompt.conversation || prompt.text.empty(), "{}: two prompts", prompt.where);
    }
  });
  accepts([&] {
    std::string again;
    const auto lines = parse_jsonl(input, "prompts.jsonl");
    for (const JsonLine& line : lines) {
      expect(line.object.is_object(), "{}: no object", line.where);
      again += line.object.dump() + "\r\n";
    }
    const auto repeated = parse_jsonl(again, "again.jsonl");
    expect(repeated.size() == lines.size(), "{} lines, then {}", lines.size(), repeated.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      expect(repeated[i].object == lines[i].object, "{}: not the same when written and read again", lines[i].where);
  });
}

}  // namespace heddle::fuzz

// Input: a prompts file, one object per line.
#include "base/json.h"
#include "cli/jsonl.h"
#include "fuzz/target.h"

namespace heddle::fuzz {

void fuzz_prompts(std::string_view input) {
  accepts([&] {
    std::string again;
    const auto lines = parse_jsonl(input, "prompts.jsonl");
    for (const JsonLine& line : lines) {
      expect(line.object.is_object(), "{}: no object", line.where);
      accepts([&, &line = line] { JsonField(line.object, line.where).at("prompt").text(); });
      again += line.object.dump() + "\r\n";
    }
    const auto repeated = parse_jsonl(again, "again.jsonl");
    expect(repeated.size() == lines.size(), "{} lines, then {}", lines.size(), repeated.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      expect(repeated[i].object == lines[i].object, "{}: not the same when written and read again", lines[i].where);
  });
}

}  // namespace heddle::fuzz

// Input: a JSON text; before a first zero byte if there is one, whose next byte then is the depth limit.
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/target.h"
#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {
namespace {

int depth_of(const nlohmann::json& value) {
  if (!value.is_structured()) return 0;
  int deepest = 0;
  for (const auto& member : value) deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

// Every accessor either returns what its header promises or throws InputError.
void walk(const JsonField& field) {
  accepts([&] { expect(!find_invalid_utf8(field.text()), "text() that is not UTF-8"); });
  accepts([&] { field.boolean(); });
  accepts([&] {
    const std::int64_t number = field.integer(-1000, 1000);
    expect(number >= -1000 && number <= 1000, "integer() gave {}", number);
  });
  accepts([&] { field.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()); });
  accepts([&] {
    const double number = field.number(-1, 1e300);
    expect(number >= -1 && number <= 1e300, "number() gave {}", number);
  });
  accepts([&] { field.at("key"); });
  accepts([&] { field.find("key"); });
  accepts([&] {
    for (const JsonField& element : field.elements()) walk(element);
  });
  accepts([&] {
    for (const auto& [key, member] : field.members()) walk(member);
  });
}

}  // namespace

void fuzz_json(std::string_view input) {
  const auto halves = split_at_zero(input);
  const std::string_view text = halves.first;
  const int max_depth = halves.second.empty() ? 64 : static_cast<unsigned char>(halves.second[0]);
  accepts([&] {
    const nlohmann::json value = parse_json(text, "fuzz.json", max_depth);
    expect(depth_of(value) <= max_depth, "deeper than {} levels", max_depth);
    expect(value == nlohmann::json::parse(text), "not what nlohmann makes of it");
    expect(value == parse_json(value.dump(), "again", max_depth), "not the same after dump and parse");
    expect(shorten(value).size() < 100, "shorten() gave {}", shorten(value));
    walk({value, "fuzz.json"});
  });
  accepts([&] { parse_json(input, "fuzz.json"); });  // zero bytes included
}

}  // namespace heddle::fuzz

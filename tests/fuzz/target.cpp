#include "fuzz/target.h"

#include <algorithm>

#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {
namespace {

constexpr Target kTargets[] = {
    {"json", fuzz_json},
    {"safetensors", fuzz_safetensors},
    {"checkpoint", fuzz_checkpoint},
    {"config", fuzz_config},
    {"tokenizer", fuzz_tokenizer, 13},  // a pattern of the file's own may take the 2 s that the tokenizer grants it,
                                        // just not passed, for each of three times that each of two texts is encoded
    {"encode", fuzz_encode},
    {"grammar", fuzz_grammar, 5},  // a grammar may take its 2 s to compile, and what it allows is then walked
    {"chat_template", fuzz_chat_template},
    {"prompts", fuzz_prompts},
    {"requests", fuzz_requests},
    {"server", fuzz_server, 13},  // several forms, each of which may take its 2 s to compile
};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

const Target* find_target(std::string_view name) {
  const auto* found = std::ranges::find(kTargets, name, &Target::name);
  return found == std::end(kTargets) ? nullptr : found;
}

void check_message(std::string_view message) {
  constexpr std::size_t kMost = 4096;
  expect(!message.empty(), "an error without a message");
  expect(message.size() <= kMost, "a message of {} bytes: {}", message.size(), message.substr(0, kMost));
  expect(!find_invalid_utf8(message), "a message that is not UTF-8: {}", message);
  for (const char c : message)
    expect(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a message with the control character {:#x}: {}", c,
           message);
}

std::pair<std::string_view, std::string_view> split_at_zero(std::string_view input) {
  const std::size_t zero = input.find('\0');
  if (zero == std::string_view::npos) return {input, {}};
  return {input.substr(0, zero), input.substr(zero + 1)};
}

}  // namespace heddle::fuzz

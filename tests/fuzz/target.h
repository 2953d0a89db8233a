// Fuzz targets: functions that read any bytes as a file or a text. They must either accept them, with asserted
// properties, or throw InputError. Anything else (another exception, a crash, a sanitizer's report, more than
// `max_seconds` of CPU time) is a finding. libFuzzer drives them under the preset `asan`; every other preset replays
// the corpora as tests.
#pragma once

#include <fmt/format.h>

#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle::fuzz {

struct Target {
  std::string_view name;  // also of its corpus: corpus/<name>/
  void (*run)(std::string_view input);
  double max_seconds = 1;
};

std::span<const Target> targets();

// Null for an unknown name.
const Target* find_target(std::string_view name);

// A property that does not hold.
struct Finding : std::logic_error {
  using std::logic_error::logic_error;
};

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw_error<Finding>(format, std::forward<Args>(args)...);
}

// Throws Finding unless `message` is one line of printable UTF-8 that fits on a screen: text that an error quotes from
// a file must not reach the terminal unescaped.
void check_message(std::string_view message);

// Whether `function` accepts its input: false when it throws InputError. Other exceptions pass through.
template <class Function>
bool accepts(Function function) {
  try {
    function();
    return true;
  } catch (const InputError& error) {
    check_message(error.what());
    return false;
  }
}

// The parts of an input before and after its first zero byte; the second is empty if there is none.
std::pair<std::string_view, std::string_view> split_at_zero(std::string_view input);

// One function per target; its file describes the input.
void fuzz_json(std::string_view input);
void fuzz_safetensors(std::string_view input);
void fuzz_checkpoint(std::string_view input);
void fuzz_config(std::string_view input);
void fuzz_tokenizer(std::string_view input);
void fuzz_encode(std::string_view input);
void fuzz_grammar(std::string_view input);
void fuzz_chat_template(std::string_view input);
void fuzz_prompts(std::string_view input);
void fuzz_requests(std::string_view input);
void fuzz_server(std::string_view input);

}  // namespace heddle::fuzz

// What stands around a form: the marks of a call of a tool, several calls, and reasoning before them.
#pragma once

#include <cstdint>
#include <string>

#include "text/grammar/automaton.h"

namespace heddle::grammar {

// preamble, open form close, separator open form close, ...
struct Frame {
  enum class Preamble : std::uint8_t {
    none,
    optional,  // nothing, or: preamble_open, any text, preamble_close, white space
    begun      // any text, preamble_close, white space: the prompt has written preamble_open
  };

  std::string open;       // before the form
  std::string close;      // behind it
  std::string separator;  // between two of them
  std::int32_t most = 1;  // so many, one at least; kUnbounded: any number. Beyond 1 the form matches no empty text
  Preamble preamble = Preamble::none;
  std::string preamble_open;
  std::string preamble_close;  // not empty
  bool operator==(const Frame&) const = default;
};

// A rule that matches `form` in its frame. Throws InputError as the builder does.
RuleId framed(AutomatonBuilder& builder, RuleId form, const Frame& frame);

}  // namespace heddle::grammar

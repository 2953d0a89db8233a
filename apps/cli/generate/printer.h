// Writes answers to standard output, as JSON or as text.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "cli/generate/answer.h"

namespace heddle {

struct PrintOptions {
  bool json = false;
  bool echo = false;       // the prompt before the answer
  bool from_file = false;  // prompts have lines
  bool titles = false;     // text: a line above each answer, because there are several
};

class Printer {
 public:
  // `before_write` is called before anything is written.
  Printer(const PrintOptions& options, Tokenizer tokenizer, std::function<void()> before_write);

  // Writes what is new of an answer: JSON when it has ended, text as it grows. The answer that has begun must end before
  // another one comes.
  void print(const Answer& answer);

  // Ends the line of a text that was interrupted, and says so where texts have titles.
  void cut();

  // Whether a terminal's cursor stands behind a text that is still growing.
  bool in_text_on_terminal() const { return terminal_ && written_ > 0; }

  int num_failed() const { return num_failed_; }
  const std::string& first_error() const { return first_error_; }
  bool writes_errors() const { return options_.titles && !options_.json; }  // each on standard error, in its place

 private:
  void begin_text(const Answer& answer, std::string& output);
  void write(const std::string& output);
  void fail(const Answer& answer);

  PrintOptions options_;
  Tokenizer tokenizer_;
  std::function<void()> before_write_;
  bool terminal_;
  bool begun_ = false;       // the title and the prompt of the answer are written
  std::string title_;        // of that answer
  std::size_t written_ = 0;  // bytes of its text
  bool any_ = false;         // an answer was written before
  int num_failed_ = 0;
  std::string first_error_;
};

}  // namespace heddle

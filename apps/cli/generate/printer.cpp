#include "cli/generate/printer.h"

#include <unistd.h>

#include "base/error.h"
#include "cli/output.h"

namespace heddle {

Printer::Printer(const PrintOptions& options, Tokenizer tokenizer, std::function<void()> before_write)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      before_write_(std::move(before_write)),
      terminal_(::isatty(STDOUT_FILENO) == 1) {}

void Printer::print(const Answer& answer) {
  std::string output;
  if (options_.json) {
    if (answer.ended())
      output = answer_json(answer, tokenizer_, {.from_file = options_.from_file, .echo = options_.echo});
  } else {
    begin_text(answer, output);
    if (answer.completion) {
      output += answer.completion->text().substr(written_);
      written_ = answer.completion->text().size();
    }
    if (answer.ended() && (!answer.failed() || written_ > 0)) output += "\n";
  }
  write(output);
  if (answer.failed()) fail(answer);
  if (!answer.ended()) return;
  any_ = true;
  begun_ = false;
  written_ = 0;
}

void Printer::begin_text(const Answer& answer, std::string& output) {
  if (begun_ || (!answer.completion && !answer.failed())) return;
  begun_ = true;
  if (any_) output += "\n";
  if (options_.titles) {
    title_ = answer_title(answer, options_.from_file);
    output += fmt::format("==> {}{} <==\n", title_, answer.failed() ? ": error" : "");
  }
  if (options_.echo && !answer.failed()) output += answer.to->text;
}

void Printer::fail(const Answer& answer) {
  if (num_failed_++ == 0) first_error_ = answer.error;
  if (!writes_errors()) return;
  before_write_();
  write_stderr(fmt::format("heddle: error: {}\n", answer.error));
}

void Printer::cut() {
  if (begun_) write(options_.titles ? fmt::format("\n==> {}: not finished <==\n", title_) : "\n");
  any_ = any_ || begun_;
  begun_ = false;
  written_ = 0;
}

void Printer::write(const std::string& output) {
  if (output.empty()) return;
  before_write_();
  write_stdout(output);
}

}  // namespace heddle

#include "cli/chat/terminal.h"

#include <fcntl.h>
#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat/completion.h"
#include "cli/commands.h"
#include "cli/interrupt.h"

namespace heddle {
namespace {

constexpr int kHistoryLines = 1000;
constexpr std::size_t kMaxShownChoices = 100;

// Empty if the user has no home.
std::filesystem::path history_file() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  std::filesystem::path state = variable("XDG_STATE_HOME");
  if (state.empty()) {
    state = variable("HOME");
    if (state.empty()) return {};
    state /= ".local/state";
  }
  return state / "heddle" / "chat_history";
}

// Creates the file, readable by its owner only, if it does not exist.
void create_private(const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0) throw_error<Failure>("{}: {}", file.string(), std::strerror(errno));
  ::close(descriptor);
}

class Terminal : public LineSource {
 public:
  Terminal(InterruptGuard& interrupt, std::function<void()> while_waiting)
      : interrupt_(interrupt), while_waiting_(std::move(while_waiting)) {
    // libedit decodes a line by the locale; without a UTF-8 locale it drops other characters.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    editor_.reset(el_init("heddle", stdin, screen_, stderr));
    history_.reset(history_init());
    if (!editor_ || !history_) throw Failure("the terminal's line editor cannot start");
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, kHistoryLines);
    history(history_.get(), &event, H_SETUNIQUE, 1);
    el_set(editor_.get(), EL_CLIENTDATA, this);
    el_set(editor_.get(), EL_GETCFN, read_character);
    el_set(editor_.get(), EL_PROMPT, prompt_text);
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_SIGNAL, 0);
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_source(editor_.get(), nullptr);  // the user's ~/.editrc
    open_history();
  }

  std::optional<std::string> line(Prompt prompt) override {
    prompt_ = prompt;
    int count = 0;
    const char* text = el_gets(editor_.get(), &count);
    if (interrupt_.signal() == SIGINT) {
      el_reset(editor_.get());
      interrupt_.rearm();
      throw Cleared{};
    }
    if (interrupt_.interrupted()) throw Interrupted{interrupt_.signal()};
    if (const std::exception_ptr thrown = std::exchange(thrown_, nullptr)) {
      std::fputs("\n", screen_);  // after what was typed so far
      std::fflush(screen_);
      std::rethrow_exception(thrown);
    }
    if (text == nullptr || count <= 0) return std::nullopt;
    std::string line(text, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    remember(line);
    return line;
  }

 private:
  struct EndEditor {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct EndHistory {
    void operator()(History* history) const { history_end(history); }
  };

  static Terminal& of(EditLine* editor) {
    Terminal* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *self;
  }

  static char* prompt_text(EditLine* editor) {
    static char message[] = "> ";
    static char continuation[] = "... ";
    return of(editor).prompt_ == Prompt::continuation ? continuation : message;
  }

  static bool line_is_empty(EditLine* editor) {
    const LineInfo& line = *el_line(editor);
    return line.lastchar == line.buffer;
  }

  // Tab: within a message it is an ordinary character.
  static void complete(EditLine* editor) {
    const Terminal& self = of(editor);
    const LineInfo& line = *el_line(editor);
    const std::string_view typed(line.buffer, static_cast<std::size_t>(line.cursor - line.buffer));
    const bool command = self.prompt_ == Prompt::message && typed.starts_with('/') && !typed.starts_with("//");
    const LineCompletion completion = command ? complete_line(typed) : LineCompletion{.inserted = "\t", .choices = {}};
    if (!completion.inserted.empty()) {
      if (el_insertstr(editor, completion.inserted.c_str()) != 0) el_beep(editor);
    } else if (completion.choices.empty()) {
      el_beep(editor);
    } else {
      std::string list = "\n";
      for (std::size_t i = 0; i < std::min(completion.choices.size(), kMaxShownChoices); ++i)
        list += harmless_text(completion.choices[i]) + "  ";
      list += completion.choices.size() > kMaxShownChoices ? "...\n" : "\n";
      std::fputs(list.c_str(), self.screen_);
      std::fflush(self.screen_);
    }
    el_set(editor, EL_REFRESH);
  }

  // Replaces libedit's own reader, which misses a signal that comes just before it waits for a key. Drops bytes that
  // are not characters. Handles Tab here, since libedit never frees the name of a user function (EL_ADDFN).
  static int read_character(EditLine* editor, wchar_t* character) {
    Terminal& self = of(editor);
    std::mbstate_t state{};
    for (char byte = 0;;) {
      const ssize_t count = self.read(byte);
      if (count <= 0) return static_cast<int>(count);
      const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
      // Ctrl-D, or what a terminal sends for one that was typed while the last line was still being processed.
      if (length <= 1 && (*character == L'\x04' || *character == L'\0') && line_is_empty(editor)) return 0;
      if (length <= 1 && *character != L'\t') return 1;
      if (length <= 1) complete(editor);
      if (length == static_cast<std::size_t>(-1)) state = {};
    }
  }

  // Exceptions do not pass through libedit: line() throws them on.
  ssize_t read(char& byte) {
    try {
      return interrupt_.read(STDIN_FILENO, {&byte, 1}, while_waiting_);
    } catch (...) {
      thrown_ = std::current_exception();
      return -1;
    }
  }

  void open_history() {
    history_file_ = history_file();
    if (history_file_.empty()) return;
    try {
      create_private(history_file_);
    } catch (const std::exception& error) {
      log_warning("no history: {}", error.what());
      history_file_.clear();
      return;
    }
    HistEvent event;
    history(history_.get(), &event, H_LOAD, history_file_.c_str());  // fails on an empty file, which is harmless
  }

  void remember(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    HistEvent event;
    history(history_.get(), &event, H_ENTER, line.c_str());
    if (history_file_.empty()) return;
    if (history(history_.get(), &event, H_SAVE, history_file_.c_str()) >= 0) return;
    log_warning("{}: the history cannot be written", history_file_.string());
    history_file_.clear();
  }

  InterruptGuard& interrupt_;
  std::function<void()> while_waiting_;
  std::exception_ptr thrown_;
  std::FILE* screen_ = ::isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditor> editor_;
  std::filesystem::path history_file_;  // empty: none
  Prompt prompt_ = Prompt::message;
};

}  // namespace

std::unique_ptr<LineSource> open_terminal(InterruptGuard& interrupt, std::function<void()> while_waiting) {
  return std::make_unique<Terminal>(interrupt, std::move(while_waiting));
}

std::string harmless_text(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) ++i;
    if (c1 || byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t'))
      result += "\xEF\xBF\xBD";
    else
      result += text[i];
  }
  return result;
}

}  // namespace heddle

#include "server/call_reader.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace heddle::server {
namespace {

constexpr std::string_view kJsonSpaces = " \t\r\n";

// Walks over the beginning of a text that may not be complete yet.
class HeadScanner {
 public:
  explicit HeadScanner(std::string_view text) : text_(text) {}

  // Steps over white space and `word`, and says whether it was there. If the text ends before: incomplete().
  bool word(std::string_view word) {
    skip_spaces();
    const std::string_view rest = text_.substr(at_);
    if (rest.size() < word.size() && word.starts_with(rest)) incomplete_ = true;
    if (incomplete_ || !rest.starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // Steps over white space and a JSON string, and returns what it says.
  std::optional<std::string> string() {
    skip_spaces();
    const std::size_t begin = at_;
    if (!word("\"")) return std::nullopt;
    for (bool escaped = false; at_ < text_.size(); ++at_) {
      if (!escaped && text_[at_] == '"') {
        ++at_;
        const auto value = nlohmann::json::parse(text_.substr(begin, at_ - begin), nullptr, false);
        if (!value.is_string()) return std::nullopt;
        return value.get<std::string>();
      }
      escaped = !escaped && text_[at_] == '\\';
    }
    incomplete_ = true;
    return std::nullopt;
  }

  bool incomplete() const { return incomplete_; }
  std::size_t at() const { return at_; }

 private:
  void skip_spaces() { at_ = std::min(text_.find_first_not_of(kJsonSpaces, at_), text_.size()); }

  std::string_view text_;
  std::size_t at_ = 0;
  bool incomplete_ = false;
};

}  // namespace

CallReader::Outcome CallReader::read_head(std::string& text, std::vector<AnswerPart>& parts) {
  HeadScanner head(text);
  std::optional<std::string> name;
  const bool begins = head.word("{") && head.word("\"name\"") && head.word(":") && (name = head.string()) &&
                      head.word(",") &&
                      (head.word("\"arguments\"") || (!head.incomplete() && head.word("\"parameters\""))) &&
                      head.word(":") && head.word("{");
  if (!begins) return head.incomplete() ? Outcome::more : Outcome::broken;
  add_part(AnswerPart::Kind::call, *name, parts);
  text.erase(0, head.at() - 1);  // the brace belongs to the arguments
  state_ = State::arguments;
  return Outcome::done;
}

std::size_t CallReader::scan(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string_) {
      if (!escaped_ && c == '"') in_string_ = false;
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (c == '<') {
      at_end_ = true;
      return at;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ <= 0) {
      at_end_ = true;
      return at + 1;
    }
  }
  return text.size();
}

CallReader::Outcome CallReader::read(std::string& text, std::vector<AnswerPart>& parts) {
  if (state_ == State::head)
    if (const Outcome outcome = read_head(text, parts); outcome != Outcome::done) return outcome;
  if (state_ == State::arguments) {
    const std::size_t end = scan(text);
    add_part(AnswerPart::Kind::arguments, std::string_view(text).substr(0, end), parts);
    text.erase(0, end);
    if (!at_end_) return Outcome::more;
    at_end_ = false;
    depth_ = 1;  // of the call itself
    state_ = State::tail;
  }
  text.erase(0, scan(text));
  return at_end_ ? Outcome::done : Outcome::more;
}

}  // namespace heddle::server

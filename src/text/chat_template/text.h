// Python's str on valid UTF-8: code points, white space, case, splitting, repr().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jinja {

// Bytes of the code point that starts at `at`.
inline std::size_t code_point_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}
char32_t code_point(std::string_view text, std::size_t at);
void append_code_point(std::string& text, char32_t code_point);
std::size_t count_code_points(std::string_view text);
// The byte at which code point `index` starts; the size of the text if there are fewer.
std::size_t byte_of(std::string_view text, std::size_t index);
// Whether `text` is UTF-8 without surrogates and overlong forms.
bool valid_utf8(std::string_view text);

bool is_space(char32_t c);  // str.isspace
bool is_space(std::string_view text, std::size_t begin, std::size_t end);
bool is_word(char32_t c);  // part of an identifier

enum class Side { both, left, right };
// Without `chars`, strips white space.
std::string_view strip(std::string_view text, std::optional<std::string_view> chars = {}, Side side = Side::both);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);        // str.title
std::string title_words(std::string_view text);  // jinja's filter: a word begins after white space and - ( { [ <
std::string swap_case(std::string_view text);

enum class CharClass {
  alpha,
  digit,
  decimal,
  numeric,
  alnum,
  space,
  lower,
  upper,
  title,
  ascii,
  identifier,
  printable
};
bool is_all(std::string_view text, CharClass what);  // str.isalpha and its like

// `most` < 0: no limit.
std::vector<std::string_view> split(std::string_view text, std::int64_t most);  // at white space
std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most);
std::vector<std::string_view> split_right(std::string_view text, std::int64_t most);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, std::int64_t most);
enum class LineEnds { drop, keep };
std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends = LineEnds::drop);

std::int64_t count(std::string_view text, std::string_view part);  // without overlaps; part.size() > 0
// Replaces at most `most` of them; `most` < 0: all.
std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);

// Parses a number as float() does: surrounding white space and underscores between digits are allowed.
std::optional<double> parse_real(std::string_view text);

std::string in_quotes(std::string_view text);  // repr()
std::string escape_html(std::string_view text);

}  // namespace heddle::jinja

#include "text/chat_template/html_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "text/chat_template/meter.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

// U+00A0 to U+00FF. Like those below, these may stand without a semicolon.
constexpr auto kLatin1 = std::to_array<std::string_view>(
    {"nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",    "copy",   "ordf",
     "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn", "sup2",   "sup3",   "acute",  "micro",
     "para",   "middot", "cedil",  "sup1",   "ordm",   "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave",
     "Aacute", "Acirc",  "Atilde", "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",
     "Igrave", "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde", "Ouml",
     "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",  "szlig",  "agrave", "aacute",
     "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil", "egrave", "eacute", "ecirc",  "euml",   "igrave",
     "iacute", "icirc",  "iuml",   "eth",    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide",
     "oslash", "ugrave", "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml"});
constexpr auto kMarkup = std::to_array<std::pair<std::string_view, char32_t>>({{"amp", '&'},
                                                                               {"lt", '<'},
                                                                               {"gt", '>'},
                                                                               {"quot", '"'},
                                                                               {"AMP", '&'},
                                                                               {"LT", '<'},
                                                                               {"GT", '>'},
                                                                               {"QUOT", '"'},
                                                                               {"COPY", 0xA9},
                                                                               {"REG", 0xAE}});
constexpr auto kPunctuation = std::to_array<std::pair<std::string_view, char32_t>>({{"apos", 0x27},
                                                                                    {"bull", 0x2022},
                                                                                    {"euro", 0x20AC},
                                                                                    {"hellip", 0x2026},
                                                                                    {"ldquo", 0x201C},
                                                                                    {"lsquo", 0x2018},
                                                                                    {"mdash", 0x2014},
                                                                                    {"ndash", 0x2013},
                                                                                    {"rdquo", 0x201D},
                                                                                    {"rsquo", 0x2019},
                                                                                    {"trade", 0x2122}});

// HTML reads the numbers from 0x80 to 0x9F as Windows-1252.
constexpr auto kWindows1252 =
    std::to_array<char32_t>({0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
                             0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
                             0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178});

bool is_ascii_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string without_tags(std::string_view text) {
  std::string result;
  for (std::size_t open; (open = text.find('<')) != std::string_view::npos;) {
    const bool comment = text.substr(open).starts_with("<!--");
    const std::size_t close = comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string_view::npos) break;
    result += text.substr(0, open);
    text.remove_prefix(close + (comment ? 3 : 1));
  }
  result += text;
  return result;
}

template <class Table>
std::optional<char32_t> find_in(const Table& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Table::value_type::first);
  return found == table.end() ? std::nullopt : std::optional(found->second);
}

// For a name that needs no semicolon.
std::optional<char32_t> find_legacy(std::string_view name) {
  if (const auto found = std::ranges::find(kLatin1, name); found != kLatin1.end())
    return static_cast<char32_t>(0xA0 + (found - kLatin1.begin()));
  return find_in(kMarkup, name);
}

// Nothing where HTML allows no such character; it is then left out.
std::optional<char32_t> numbered(std::uint32_t number) {
  if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) return U'\uFFFD';
  if (number >= 0x80 && number < 0xA0) return kWindows1252[number - 0x80];
  const bool control = number < 0x20 && (number < '\t' || number > '\r' || number == '\v');
  if (control || number == 0x7F || (number >= 0xFDD0 && number < 0xFDF0) || (number & 0xFFFE) == 0xFFFE)
    return std::nullopt;
  return static_cast<char32_t>(number);
}

// Decodes the reference after the "&" at the beginning of `text`, and removes it; false: not a reference.
bool take_number(std::string_view& text, std::string& result) {
  const bool hex = text.size() > 1 && (text[1] | 0x20) == 'x';
  std::size_t end = hex ? 2 : 1;
  const std::size_t begin = end;
  std::uint32_t number = 0;
  for (; end < text.size(); ++end) {
    const char c = text[end], small = static_cast<char>(c | 0x20);
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(hex && small >= 'a' && small <= 'f')) break;
    const auto digit = static_cast<std::uint32_t>(decimal ? c - '0' : small - 'a' + 10);
    number = std::min<std::uint32_t>(number * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (end == begin) return false;
  if (const auto c = numbered(number)) append_code_point(result, *c);
  text.remove_prefix(end + (end < text.size() && text[end] == ';' ? 1 : 0));
  return true;
}

bool take_name(std::string_view& text, std::string& result) {
  constexpr std::size_t kLongest = 32;
  std::size_t size = 0;
  while (size < std::min(text.size(), kLongest) && is_ascii_alnum(text[size])) ++size;
  const bool semicolon = size < text.size() && text[size] == ';';
  const std::string_view name = text.substr(0, size);
  std::optional<char32_t> found = find_legacy(name);
  if (!found && semicolon) found = find_in(kPunctuation, name);
  if (found) {
    append_code_point(result, *found);
    text.remove_prefix(size + (semicolon ? 1 : 0));
    return true;
  }
  if (semicolon && size >= 2)
    throw TemplateError(
        fmt::format("striptags: the character reference {} is not supported", in_quotes(fmt::format("&{};", name))));
  for (std::size_t shorter = size; shorter-- > 2;) {
    found = find_legacy(name.substr(0, shorter));
    if (!found) continue;
    append_code_point(result, *found);
    text.remove_prefix(shorter);
    return true;
  }
  return false;
}

std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t ampersand; (ampersand = text.find('&')) != std::string_view::npos;) {
    result += text.substr(0, ampersand);
    text.remove_prefix(ampersand + 1);
    if (!(text.starts_with('#') ? take_number(text, result) : take_name(text, result))) result += '&';
  }
  result += text;
  return result;
}

}  // namespace

std::string strip_tags(std::string_view text) {
  const std::string untagged = without_tags(text);
  return unescape(fmt::format("{}", fmt::join(split(untagged, -1), " ")));
}

}  // namespace heddle::jinja

#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace heddle {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxShownKey = 100;
constexpr std::size_t kMaxShownToken = 60;
constexpr std::size_t kMaxShownMessage = 1000;

// Line and column, in code points, of the byte at `position`.
std::string place_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, position);
  const std::size_t line_begin = before.rfind('\n') + 1;  // of npos: 0
  const auto begins_character = [](char byte) { return (byte & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     1 + std::ranges::count_if(before.substr(line_begin), begins_character));
}

// Bytes of the string or number at the beginning of `token`; nothing: an unterminated string.
std::optional<std::size_t> size_of_first(std::string_view token) {
  if (!token.starts_with('"')) return std::min(token.find_first_not_of("0123456789+-.eE"), token.size());
  for (std::size_t i = 1; i < token.size(); ++i) {
    if (token[i] == '"') return i + 1;
    if (token[i] == '\\') ++i;
  }
  return std::nullopt;
}

// Describes a syntax error of nlohmann's parser. The parser has read `num_read` bytes, which end with `token`: the last
// string or number and the characters after it.
std::string syntax_error(std::string_view text, std::size_t num_read, std::string_view token) {
  if (num_read > text.size()) return fmt::format("it ends too early, at {}", place_of(text, text.size()));
  std::size_t begin = std::max<std::size_t>(num_read, 1) - 1;
  const std::optional<std::size_t> first = size_of_first(token);
  if (!first) {
    const auto byte = static_cast<unsigned char>(text[begin]);
    const bool ill_formed = byte >= 0x80 || (text[begin - 1] & 0x80) != 0;
    return fmt::format("{} in a string at {}",
                       byte < 0x20  ? "a control character that is not escaped"
                       : ill_formed ? "a character that is not UTF-8"
                                    : "an escape that there is not",
                       place_of(text, begin));
  }
  std::size_t end = begin + 1;
  if (first == token.size() && *first > 0)
    begin = end - std::min(*first, end);
  else
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return fmt::format("{} is unexpected at {}", shorten(json(text.substr(begin, end - begin))), place_of(text, begin));
}

// An object or array that the parser is inside of. Its parent does not grow meanwhile, so the pointer stays valid.
template <class Json>
struct Open {
  Json* value;
};

template <>
struct Open<ordered_json> {
  ordered_json* value;
  std::unordered_set<std::string> keys;  // for ordered objects, whose own lookup is linear
};

// Null when the object already has that key.
json* insert_member(Open<json>& object, const std::string& key) {
  const auto [place, inserted] = object.value->get_ref<json::object_t&>().emplace(key, nullptr);
  return inserted ? &place->second : nullptr;
}

ordered_json* insert_member(Open<ordered_json>& object, const std::string& key) {
  if (!object.keys.insert(key).second) return nullptr;
  // The vector that ordered_json's map derives from; inserting there does not search for the key again.
  std::vector<std::pair<const std::string, ordered_json>>& members = object.value->get_ref<ordered_json::object_t&>();
  return &members.emplace_back(key, nullptr).second;
}

// Builds the tree from nlohmann's events. Rejects deep nesting and duplicate keys immediately, before a tree of hostile
// size exists. (nlohmann's own parser with a callback searches the parent at the end of every object, which takes hours
// for an object with a million members.)
template <class Json>
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, std::string_view where, int max_depth)
      : text_(text), where_(where), max_depth_(max_depth) {}

  Json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string& digits) {
    // A value that is written again must not change: 123456789012345678901 is not 1.2345678901234568e+20.
    if (std::is_same_v<Json, ordered_json> && digits.find_first_of(".eE") == std::string::npos)
      throw_error<InputError>("{}: the whole number {} is beyond 64 bits", where_, printable(digits, kMaxShownToken));
    return add(value);
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) { return false; }  // JSON text has no binary values

  bool start_object(std::size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    member_ = insert_member(open_.back(), key);
    if (member_ == nullptr)
      throw_error<InputError>("{}: the key {} stands twice in one object", where_, shorten(json(key)));
    return true;
  }

  bool parse_error(std::size_t num_read, const std::string& token, const typename Json::exception& error) {
    constexpr int kNumberOverflow = 406;
    throw_error<InputError>("{}: is not valid JSON: {}", where_,
                            error.id == kNumberOverflow
                                ? fmt::format("the number {} is too large", printable(token, kMaxShownToken))
                                : syntax_error(text_, num_read, token));
  }

 private:
  // Stores a value at the parser's position: the root, the next element, or the member of the last key.
  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (Json& parent = *open_.back().value; parent.is_array())
      return parent.template get_ref<typename Json::array_t&>().emplace_back(std::move(value));
    return *member_ = std::move(value);
  }

  bool add(Json value) {
    put(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) == max_depth_)
      throw_error<InputError>("{}: nested deeper than {} levels (max_json_depth)", where_, max_depth_);
    Json& placed = put(std::move(value));
    open_.emplace_back().value = &placed;
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  int max_depth_;
  Json root_;
  std::vector<Open<Json>> open_;
  Json* member_ = nullptr;
};

template <class Json>
Json parse(std::string_view text, std::string_view where, int max_depth) {
  // nlohmann's lexer stops at a zero byte and would not see what follows.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw_error<InputError>("{}: is not valid JSON: a zero byte at {}", where, place_of(text, zero));
  TreeBuilder<Json> builder(text, where, max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string kind_of(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return shorten(value);
}

}  // namespace

std::string shorten(const json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

json parse_json(std::string_view text, std::string_view where, int max_depth) {
  return parse<json>(text, where, max_depth);
}

ordered_json parse_ordered_json(std::string_view text, std::string_view where, int max_depth) {
  return parse<ordered_json>(text, where, max_depth);
}

JsonField::JsonField(const json& value, std::string path) : value_(&value), path_(std::move(path)) {}

JsonField JsonField::at(std::string_view key) const {
  if (!value_->is_object()) fail_expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end())
    throw_error<InputError>("{}: the field \"{}\" is missing", path_, printable(key, kMaxShownKey));
  return {*found, fmt::format("{}: {}", path_, printable(key, kMaxShownKey))};
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  if (!value_->is_object()) fail_expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonField(*found, fmt::format("{}: {}", path_, printable(key, kMaxShownKey)));
}

std::vector<std::pair<std::string, JsonField>> JsonField::members() const {
  if (!value_->is_object()) fail_expected("an object");
  std::vector<std::pair<std::string, JsonField>> result;
  result.reserve(value_->size());
  for (const auto& [key, member] : value_->items())
    result.emplace_back(key, JsonField(member, path_ + ": " + printable(key, kMaxShownKey)));
  return result;
}

std::vector<JsonField> JsonField::elements() const {
  if (!value_->is_array()) fail_expected("an array");
  std::vector<JsonField> result;
  result.reserve(value_->size());
  for (const json& element : *value_) result.emplace_back(element, fmt::format("{}[{}]", path_, result.size()));
  return result;
}

std::string JsonField::text() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get<std::string>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) fail_expected("true or false");
  return value_->get<bool>();
}

std::int64_t JsonField::integer(std::int64_t min, std::int64_t max) const {
  const auto in_range = [&]() -> std::optional<std::int64_t> {
    if (value_->is_number_unsigned()) {
      const auto number = value_->get<std::uint64_t>();
      if (std::in_range<std::int64_t>(number)) return static_cast<std::int64_t>(number);
    } else if (value_->is_number_integer()) {
      return value_->get<std::int64_t>();
    } else if (value_->is_number_float()) {
      const double number = value_->get<double>();
      if (std::abs(number) < 0x1p53 && number == std::floor(number)) return static_cast<std::int64_t>(number);
    }
    return std::nullopt;
  }();
  if (!in_range || *in_range < min || *in_range > max)
    fail_expected(fmt::format("a whole number from {} to {}", min, max));
  return *in_range;
}

double JsonField::number(double min, double max) const {
  const double number = value_->is_number() ? value_->get<double>() : std::nan("");
  constexpr double kMost = std::numeric_limits<double>::max();
  if (!(number >= min && number <= max))
    fail_expected(max < kMost     ? fmt::format("a number from {} to {}", min, max)
                  : min == -kMost ? std::string("a number")
                                  : fmt::format("a number of at least {}", min));
  return number;
}

bool JsonField::is_object() const {
  return value_->is_object();
}
bool JsonField::is_array() const {
  return value_->is_array();
}
bool JsonField::is_string() const {
  return value_->is_string();
}

void JsonField::fail(std::string_view message) const {
  throw_error<InputError>("{}: {}", path_, printable(message, kMaxShownMessage));
}

void JsonField::fail_expected(std::string_view expected) const {
  throw_error<InputError>("{}: expected {}, found {}", path_, expected, kind_of(*value_));
}

}  // namespace heddle

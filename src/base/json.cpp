#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownKey = 100;
constexpr std::size_t kMaxShownMessage = 1000;

// Builds the tree from nlohmann's events, and refuses deep nesting and doubled keys as they come, before a tree of
// hostile size exists. (nlohmann's own parser with a callback searches the parent at the end of every object, which
// takes hours where an object has a million members.)
class TreeBuilder {
 public:
  TreeBuilder(std::string_view where, int max_depth) : where_(where), max_depth_(max_depth) {}

  json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // JSON text has none

  bool start_object(std::size_t) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    const auto [place, inserted] = open_.back()->get_ref<json::object_t&>().emplace(key, nullptr);
    if (!inserted) throw_error<InputError>("{}: the key {} stands twice in one object", where_, shorten(json(key)));
    member_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's own prefix.
    const std::string_view message = error.what();
    const std::size_t start = message.find("] ");
    const std::string_view reason = start == std::string_view::npos ? message : message.substr(start + 2);
    constexpr std::size_t kMost = 200;
    throw_error<InputError>("{}: is not valid JSON: {}", where_, printable(reason, kMost));
  }

 private:
  // Puts a value where the parser is: the root, the next element, or the member whose key came last.
  json& put(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    return *member_ = std::move(value);
  }

  bool add(json value) {
    put(std::move(value));
    return true;
  }

  bool open(json value) {
    if (static_cast<int>(open_.size()) == max_depth_)
      throw_error<InputError>("{}: nested deeper than {} levels", where_, max_depth_);
    open_.push_back(&put(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view where_;
  int max_depth_;
  json root_;
  std::vector<json*> open_;  // objects and arrays around the parser; an open one's parent does not grow
  json* member_ = nullptr;
};

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
  // nlohmann's lexer takes a zero byte for the end of the text and would not see what stands behind it.
  if (text.find('\0') != std::string_view::npos)
    throw_error<InputError>("{}: is not valid JSON: holds a zero byte", where);
  TreeBuilder builder(where, max_depth);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
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
    fail_expected(max == kMost ? fmt::format("a number of at least {}", min)
                               : fmt::format("a number from {} to {}", min, max));
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

// JSON from files and users: nlohmann::json behind limits, and typed access whose errors name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Parses `text`. `where` begins every message: a path, or a path and line. Throws InputError on anything that is not
// exactly one JSON value: syntax (with line and column), invalid UTF-8, a key that an object has twice, nesting
// deeper than `max_depth`.
nlohmann::json parse_json(std::string_view text, std::string_view where, int max_depth = 64);

// The same for texts that are written again, as conversations are by a chat template: objects keep the order of their
// members, and a whole number beyond 64 bits is an InputError too. Lookup by key is linear in an ordered object.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, int max_depth = 64);

// A JSON value and the path that led to it ("config.json: rope_scaling.factor"). A view: the value must outlive it.
// Every accessor throws InputError that names the path, what is expected and what was found. Messages are one line of
// printable UTF-8, whatever stands in the file: control characters are escaped, long keys and values cut.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path);

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // Of an object. `at` throws when the key is missing; `find` gives nothing when it is missing or null.
  JsonField at(std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;
  std::vector<std::pair<std::string, JsonField>> members() const;  // in key order

  // Of an array.
  std::vector<JsonField> elements() const;

  std::string text() const;
  bool boolean() const;
  // A whole number (a float without a fraction counts) in [min, max].
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  // A finite number in [min, max].
  double number(double min, double max) const;

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  // Throws InputError "<path>: <message>"; `message` may quote the file as it is.
  [[noreturn]] void fail(std::string_view message) const;
  [[noreturn]] void fail_expected(std::string_view expected) const;  // "... expected <expected>, found <value>"

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// A value cut to a length that fits into one line of an error message.
std::string shorten(const nlohmann::json& value);

}  // namespace heddle

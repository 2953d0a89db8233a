// JSON from files and users: nlohmann::json with limits, and typed access whose errors name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Parses `text`. `where` begins every message: a path, or a path and line. Throws InputError unless the text is exactly
// one JSON value: wrong syntax (with line and column), invalid UTF-8, a duplicate key in an object, nesting deeper than
// `max_depth`.
nlohmann::json parse_json(std::string_view text, std::string_view where, int max_depth = 64);

// The same for texts that are written again, such as conversations for a chat template: objects keep the order of their
// members, and an integer beyond 64 bits is an InputError too. Lookup by key is linear in an ordered object.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where, int max_depth = 64);

// A JSON value and its path ("config.json: rope_scaling.factor"). A view: the value must outlive it. Every accessor
// throws InputError that names the path, what is expected and what was found. Messages are one line of printable UTF-8,
// whatever the file contains: control characters are escaped, long keys and values shortened.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path);

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // For objects. `at` throws when the key is missing; `find` returns nothing when it is missing or null.
  JsonField at(std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;
  std::vector<std::pair<std::string, JsonField>> members() const;  // in key order

  // For arrays.
  std::vector<JsonField> elements() const;

  std::string text() const;
  bool boolean() const;
  // An integer in [min, max]; a float without a fraction counts.
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  // A finite number in [min, max].
  double number(double min, double max) const;

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  // Throws InputError "<path>: <message>"; `message` may quote the file unescaped.
  [[noreturn]] void fail(std::string_view message) const;
  [[noreturn]] void fail_expected(std::string_view expected) const;  // "... expected <expected>, found <value>"

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// A value shortened to fit into one line of an error message.
std::string shorten(const nlohmann::json& value);

}  // namespace heddle

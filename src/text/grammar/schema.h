// JSON Schema (2020-12) read into a disjunction of plain alternatives: references followed, allOf joined, anyOf and oneOf
// taken apart. A keyword that is not supported is an InputError that names it and its place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/character_automaton.h"
#include "text/grammar/number_text.h"

namespace heddle::grammar {

using Json = nlohmann::ordered_json;

// Schemas that a value must satisfy all at once; none: any value.
using Conjunction = std::vector<const Json*>;

enum TypeBits : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,   // numbers without a fraction
  kFraction = 8,  // other numbers
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127
};

// What a value must satisfy, without choices.
struct PlainSchema {
  Conjunction from;
  unsigned types = kAnyType;
  std::optional<std::vector<const Json*>> values;  // enum, const

  std::vector<std::pair<std::string, Conjunction>> properties;  // in order of the schema
  std::set<std::string, std::less<>> required;                  // each is among the properties
  std::optional<Conjunction> additional;                        // nothing: no other properties

  std::vector<Conjunction> prefix;
  Conjunction items;
  std::int32_t min_items = 0;
  std::int32_t max_items = kUnbounded;

  std::int32_t min_length = 0;
  std::int32_t max_length = kUnbounded;
  std::set<std::pair<std::string, bool>> patterns;  // expression, whole text (else anywhere)

  NumberRange range;
};

class SchemaReader {
 public:
  // `where` begins messages. All must outlive it.
  SchemaReader(const Json& root, std::string where, const AutomatonBuilder& builder);

  // The alternatives that `all` comes to. Throws InputError.
  std::vector<PlainSchema> expand(const Conjunction& all);

  // Throws InputError unless every oneOf that has been met is an anyOf, because no value can match two of its schemas.
  void check_choices();

  // Whether `value` satisfies one of the alternatives.
  bool valid(const Json& value, const Conjunction& all);

  // The automaton of a schema's pattern or format.
  const CharacterAutomaton& automaton_of(const std::pair<std::string, bool>& pattern, const Conjunction& from);

  [[noreturn]] void fail(const Json* schema, std::string_view message) const;

 private:
  struct Trail;
  struct Pending;
  struct Branch;

  const std::string& path_of(const Json* schema) const { return paths_.at(schema); }
  const Json* child(const Json* of, const Json& schema, const std::string& key);
  const Json* target_of(const Json* schema, const Json& reference);
  void check_keywords(const Json* schema);
  bool take(const Json* schema, const std::shared_ptr<const Trail>& trail, Branch& branch,
            std::vector<std::vector<Pending>>& choices);
  bool disjoint(const Conjunction& a, const Conjunction& b, int depth);
  bool disjoint(const PlainSchema& a, const PlainSchema& b, int depth);
  bool disjoint_objects(const PlainSchema& a, const PlainSchema& b, int depth);

  PlainSchema plain(const Conjunction& chosen);
  void read_types(const Json* schema, PlainSchema& plain) const;
  void read_values(const Json* schema, PlainSchema& plain) const;
  void read_text(const Json* schema, PlainSchema& plain) const;
  void read_numbers(const Json* schema, PlainSchema& plain) const;
  void read_objects(const Conjunction& chosen, PlainSchema& plain);
  void read_arrays(const Conjunction& chosen, PlainSchema& plain);
  Conjunction property_of(const Conjunction& chosen, const std::string& name);
  std::int32_t size_of(const Json* schema, const char* keyword, std::int32_t otherwise) const;
  bool valid_plain(const Json& value, const PlainSchema& plain);

  const Json& root_;
  std::string where_;
  const AutomatonBuilder& builder_;
  std::map<const Json*, std::string> paths_;
  std::set<const Json*> checked_;
  std::set<const Json*> seen_one_ofs_;
  std::vector<const Json*> one_ofs_;  // to be checked
  std::map<std::pair<std::string, bool>, CharacterAutomaton> automata_;
};

// The type of a value, as one of TypeBits.
unsigned type_of(const Json& value);

// The number of characters.
std::int64_t length_of(std::string_view text);

// Equal as JSON: 1 and 1.0 are, and the order of members does not count.
bool equal(const Json& a, const Json& b);

}  // namespace heddle::grammar

#include "text/grammar/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "text/grammar/formats.h"
#include "text/grammar/limits.h"

namespace heddle::grammar {
namespace {

constexpr std::int32_t kMostCount = 1 << 30;
constexpr int kDisjointDepth = 6;
constexpr std::size_t kShown = 200;  // bytes of a path or a name in a message

constexpr std::string_view kKeywords[] = {
    "$ref", "$defs", "definitions", "type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "required",
    "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength",
    "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    // These say something about a schema and nothing about values.
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"};

struct TypeName {
  std::string_view name;
  unsigned types;
};
constexpr TypeName kTypes[] = {
    {"null", kNull},   {"boolean", kBoolean}, {"integer", kInteger},           {"string", kString},
    {"array", kArray}, {"object", kObject},   {"number", kInteger | kFraction}};

struct KeywordType {
  std::string_view keyword;
  unsigned types;
};
constexpr KeywordType kKeywordTypes[] = {{"properties", kObject},
                                         {"required", kObject},
                                         {"additionalProperties", kObject},
                                         {"items", kArray},
                                         {"prefixItems", kArray},
                                         {"minItems", kArray},
                                         {"maxItems", kArray},
                                         {"uniqueItems", kArray},
                                         {"minLength", kString},
                                         {"maxLength", kString},
                                         {"pattern", kString},
                                         {"format", kString},
                                         {"minimum", kInteger | kFraction},
                                         {"maximum", kInteger | kFraction},
                                         {"exclusiveMinimum", kInteger | kFraction},
                                         {"exclusiveMaximum", kInteger | kFraction}};

void add_once(Conjunction& all, const Json* schema) {
  if (std::ranges::find(all, schema) == all.end()) all.push_back(schema);
}

// A step of a JSON pointer as a key.
std::string unescaped(std::string_view step) {
  std::string key;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size()) {
      key += step[++i] == '1' ? '/' : '~';
      continue;
    }
    int byte = 0;
    if (step[i] == '%' && i + 2 < step.size() &&
        std::from_chars(step.data() + i + 1, step.data() + i + 3, byte, 16).ptr == step.data() + i + 3) {
      key += static_cast<char>(byte);
      i += 2;
      continue;
    }
    key += step[i];
  }
  return key;
}

std::string escaped(std::string_view key) {
  std::string step;
  for (const char c : key) step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return step;
}

}  // namespace

unsigned type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return kBoolean;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      return std::trunc(number) == number ? kInteger : kFraction;
    }
    default:
      return kInteger;
  }
}

std::int64_t length_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

bool equal(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    return std::ranges::all_of(a.items(), [&](const auto& member) {
      const auto other = b.find(member.key());
      return other != b.end() && equal(member.value(), *other);
    });
  }
  if (a.is_array() && b.is_array())
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](const Json& x, const Json& y) { return equal(x, y); });
  return a == b;
}

// The schemas that led to another one at the same place of a value.
struct SchemaReader::Trail {
  const Json* schema;
  std::shared_ptr<const Trail> before;
};

struct SchemaReader::Pending {
  const Json* schema;
  std::shared_ptr<const Trail> trail;
};

struct SchemaReader::Branch {
  std::vector<Pending> pending;
  std::vector<std::vector<Pending>> choices;  // one of each is to be taken
  Conjunction chosen;
};

SchemaReader::SchemaReader(const Json& root, std::string where, const AutomatonBuilder& builder)
    : root_(root), where_(std::move(where)), builder_(builder) {
  paths_[&root_] = "#";
}

void SchemaReader::fail(const Json* schema, std::string_view message) const {
  const auto path = paths_.find(schema);
  throw_error<InputError>("{}: {}: {}", where_, printable(path == paths_.end() ? "#" : path->second, kShown),
                          printable(message, 2 * kShown));
}

// `schema`, part of the schema `of` behind `key`.
const Json* SchemaReader::child(const Json* of, const Json& schema, const std::string& key) {
  const auto [place, added] = paths_.try_emplace(&schema, std::string());
  if (added) place->second = path_of(of) + "/" + key;
  return &schema;
}

const Json* SchemaReader::target_of(const Json* schema, const Json& reference) {
  if (!reference.is_string()) fail(schema, "$ref is no string");
  const std::string text = reference.get<std::string>();
  if (text != "#" && !text.starts_with("#/"))
    fail(schema, "$ref is " + reference.dump() + "; only parts of the same schema are supported, as #/$defs/name");
  const Json* at = &root_;
  std::string_view rest = std::string_view(text).substr(1);
  std::string path = "#";
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string key = unescaped(rest.substr(0, end));
    rest.remove_prefix(end);
    std::size_t index = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    if (at->is_object() && at->contains(key))
      at = &(*at)[key];
    else if (at->is_array() && is_index && index < at->size())
      at = &(*at)[index];
    else
      fail(schema, "$ref is " + reference.dump() + ", and there is no such part");
    path += "/" + escaped(key);
  }
  paths_.try_emplace(at, path);
  return at;
}

void SchemaReader::check_keywords(const Json* schema) {
  if (!checked_.insert(schema).second) return;
  builder_.check_time();
  if (!schema->is_object())
    fail(schema, "expected a schema, an object or a boolean, found " + shorten(nlohmann::json(*schema)));
  for (const auto& member : schema->items()) {
    const std::string& keyword = member.key();
    const Json& value = member.value();
    if (std::ranges::find(kKeywords, keyword) == std::end(kKeywords))
      fail(schema, "the keyword \"" + printable(keyword, kShown) + "\" is not supported");
    const auto expect = [&](bool right, std::string_view expected) {
      if (!right) fail(schema, fmt::format("{} is {}, expected {}", keyword, shorten(nlohmann::json(value)), expected));
    };
    if (keyword == "$defs" || keyword == "definitions" || keyword == "properties")
      expect(value.is_object(), "an object");
    else if (keyword == "anyOf" || keyword == "oneOf" || keyword == "allOf")
      expect(value.is_array() && !value.empty(), "a list of schemas");
    else if (keyword == "prefixItems")
      expect(value.is_array(), "a list of schemas");
    else if (keyword == "enum")
      expect(value.is_array(), "a list");
    else if (keyword == "required")
      expect(value.is_array() && std::ranges::all_of(value, [](const Json& name) { return name.is_string(); }),
             "a list of names");
    else if (keyword == "pattern" || keyword == "format")
      expect(value.is_string(), "a string");
    else if (keyword.find("inimum") != std::string::npos || keyword.find("aximum") != std::string::npos)
      expect(value.is_number() && std::isfinite(value.get<double>()), "a number");
    else if (keyword == "uniqueItems")
      expect(value.is_boolean() && !value.get<bool>(), "false: uniqueItems is not supported");
    else if (keyword == "$id")
      expect(schema == &root_, "to be in the root only");
  }
}

// Takes a schema into a branch, and notes what follows from it. False: it matches nothing.
bool SchemaReader::take(const Json* schema, const std::shared_ptr<const Trail>& trail, Branch& branch,
                        std::vector<std::vector<Pending>>& choices) {
  if (schema->is_boolean()) return schema->get<bool>();
  check_keywords(schema);
  for (const Trail* before = trail.get(); before != nullptr; before = before->before.get())
    if (before->schema == schema) fail(schema, "refers to itself without an array or an object in between");
  if (std::ranges::find(branch.chosen, schema) != branch.chosen.end()) return true;
  branch.chosen.push_back(schema);
  const auto here = std::make_shared<const Trail>(Trail{schema, trail});
  if (const auto reference = schema->find("$ref"); reference != schema->end())
    branch.pending.push_back({target_of(schema, *reference), here});
  if (const auto all = schema->find("allOf"); all != schema->end())
    for (std::size_t i = 0; i < all->size(); ++i)
      branch.pending.push_back({child(schema, (*all)[i], "allOf/" + std::to_string(i)), here});
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const auto any = schema->find(keyword);
    if (any == schema->end()) continue;
    std::vector<Pending> choice;
    for (std::size_t i = 0; i < any->size(); ++i)
      choice.push_back({child(schema, (*any)[i], keyword + ("/" + std::to_string(i))), here});
    choices.push_back(std::move(choice));
    if (std::string_view(keyword) == "oneOf" && seen_one_ofs_.insert(schema).second) one_ofs_.push_back(schema);
  }
  return true;
}

std::vector<PlainSchema> SchemaReader::expand(const Conjunction& all) {
  Branch start;
  for (const Json* schema : all) start.pending.push_back({schema, nullptr});
  std::deque<Branch> open{std::move(start)};
  std::vector<PlainSchema> alternatives;
  while (!open.empty()) {
    builder_.check_time();
    Branch branch = std::move(open.front());
    open.pop_front();
    bool possible = true;
    while (possible && !branch.pending.empty()) {
      const Pending next = branch.pending.back();
      branch.pending.pop_back();
      possible = take(next.schema, next.trail, branch, branch.choices);
    }
    if (!possible) continue;
    if (branch.choices.empty()) {
      alternatives.push_back(plain(branch.chosen));
      continue;
    }
    const std::vector<Pending> choice = std::move(branch.choices.back());
    branch.choices.pop_back();
    if (open.size() + alternatives.size() + choice.size() > kMaxAlternatives)
      fail(branch.chosen.front(), fmt::format("more than {} combinations of anyOf, oneOf and allOf", kMaxAlternatives));
    for (std::size_t i = choice.size(); i-- > 0;) {
      Branch one = branch;
      one.pending.push_back(choice[i]);
      open.push_front(std::move(one));
    }
  }
  return alternatives;
}

void SchemaReader::check_choices() {
  while (!one_ofs_.empty()) {
    const Json* schema = one_ofs_.back();
    one_ofs_.pop_back();
    const Json& alternatives = (*schema)["oneOf"];
    for (std::size_t a = 0; a < alternatives.size(); ++a)
      for (std::size_t b = a + 1; b < alternatives.size(); ++b)
        if (!disjoint(Conjunction{&alternatives[a]}, Conjunction{&alternatives[b]}, 0))
          fail(schema, fmt::format("oneOf: a value might match both of its schemas {} and {}: use anyOf, or tell them "
                                   "apart by type, const or a required property",
                                   a, b));
  }
}

bool SchemaReader::disjoint(const Conjunction& a, const Conjunction& b, int depth) {
  if (depth > kDisjointDepth) return false;
  const std::vector<PlainSchema> all_a = expand(a);
  const std::vector<PlainSchema> all_b = expand(b);
  return std::ranges::all_of(all_a, [&](const PlainSchema& one) {
    return std::ranges::all_of(all_b, [&](const PlainSchema& other) { return disjoint(one, other, depth); });
  });
}

bool SchemaReader::disjoint(const PlainSchema& a, const PlainSchema& b, int depth) {
  builder_.check_time();
  unsigned common = a.types & b.types;
  if (common == 0) return true;
  const auto none_valid = [&](const PlainSchema& of, const PlainSchema& other) {
    return of.values && std::ranges::none_of(*of.values, [&](const Json* value) { return valid_plain(*value, other); });
  };
  if (none_valid(a, b) || none_valid(b, a)) return true;
  const auto apart = [](const std::optional<NumberBound>& most, const std::optional<NumberBound>& least) {
    if (!most || !least) return false;
    const int order = compare(*most, *least);
    return order < 0 || (order == 0 && (most->strict || least->strict));
  };
  if (apart(a.range.most, b.range.least) || apart(b.range.most, a.range.least)) common &= ~(kInteger | kFraction);
  const auto shorter = [](std::int32_t most, std::int32_t least) { return most != kUnbounded && most < least; };
  if (shorter(a.max_length, b.min_length) || shorter(b.max_length, a.min_length)) common &= ~unsigned{kString};
  if (shorter(a.max_items, b.min_items) || shorter(b.max_items, a.min_items)) common &= ~unsigned{kArray};
  if ((common & kObject) != 0 && disjoint_objects(a, b, depth)) common &= ~unsigned{kObject};
  return common == 0;
}

bool SchemaReader::disjoint_objects(const PlainSchema& a, const PlainSchema& b, int depth) {
  const auto find = [](const PlainSchema& in, const std::string& name) -> std::optional<Conjunction> {
    const auto found = std::ranges::find(in.properties, name, &std::pair<std::string, Conjunction>::first);
    return found != in.properties.end() ? std::optional(found->second) : in.additional;
  };
  const auto told_by = [&](const PlainSchema& one, const PlainSchema& other) {
    return std::ranges::any_of(one.required, [&](const std::string& name) {
      const auto there = find(other, name);
      if (!there) return true;
      return other.required.contains(name) && disjoint(*find(one, name), *there, depth + 1);
    });
  };
  return told_by(a, b) || told_by(b, a);
}

PlainSchema SchemaReader::plain(const Conjunction& chosen) {
  PlainSchema plain{.from = chosen};
  bool has_type = false;
  unsigned implied = 0;
  for (const Json* schema : chosen) {
    has_type = has_type || schema->contains("type") || schema->contains("enum") || schema->contains("const");
    for (const KeywordType& keyword : kKeywordTypes)
      if (schema->contains(keyword.keyword)) implied |= keyword.types;
    read_types(schema, plain);
    read_values(schema, plain);
    read_text(schema, plain);
    read_numbers(schema, plain);
  }
  // Whoever writes "properties" without a type means an object.
  if (!has_type && implied != 0) plain.types = implied;
  read_objects(chosen, plain);
  read_arrays(chosen, plain);
  if (plain.values)
    std::erase_if(*plain.values, [&](const Json* value) {
      PlainSchema rest = plain;
      rest.values.reset();
      return !valid_plain(*value, rest);
    });
  return plain;
}

void SchemaReader::read_types(const Json* schema, PlainSchema& plain) const {
  const auto type = schema->find("type");
  if (type == schema->end()) return;
  const Json names = type->is_array() ? *type : Json::array({*type});
  unsigned types = 0;
  for (const Json& name : names) {
    const auto known = std::ranges::find_if(kTypes, [&](const TypeName& one) { return name == one.name; });
    if (known == std::end(kTypes))
      fail(schema, "type: " + shorten(nlohmann::json(name)) + " is no type of JSON Schema");
    types |= known->types;
  }
  plain.types &= types;
}

void SchemaReader::read_values(const Json* schema, PlainSchema& plain) const {
  const auto keep = [&](const std::vector<const Json*>& values) {
    if (!plain.values) {
      plain.values = values;
      return;
    }
    std::erase_if(*plain.values, [&](const Json* value) {
      return std::ranges::none_of(values, [&](const Json* other) { return equal(*value, *other); });
    });
  };
  if (const auto one = schema->find("const"); one != schema->end()) keep({&*one});
  if (const auto list = schema->find("enum"); list != schema->end()) {
    std::vector<const Json*> values;
    for (const Json& value : *list) values.push_back(&value);
    keep(values);
  }
}

std::int32_t SchemaReader::size_of(const Json* schema, const char* keyword, std::int32_t otherwise) const {
  const auto field = schema->find(keyword);
  if (field == schema->end()) return otherwise;
  const double value = field->is_number() ? field->get<double>() : -1;
  if (!(value >= 0 && value <= kMostCount && std::trunc(value) == value))
    fail(schema, fmt::format("{} is {}, expected a whole number from 0 to {}", keyword, shorten(nlohmann::json(*field)),
                             kMostCount));
  return static_cast<std::int32_t>(value);
}

void SchemaReader::read_text(const Json* schema, PlainSchema& plain) const {
  plain.min_length = std::max(plain.min_length, size_of(schema, "minLength", 0));
  if (const std::int32_t most = size_of(schema, "maxLength", kUnbounded); most != kUnbounded)
    plain.max_length = plain.max_length == kUnbounded ? most : std::min(most, plain.max_length);
  if (const auto pattern = schema->find("pattern"); pattern != schema->end())
    plain.patterns.emplace(pattern->get<std::string>(), false);
  if (const auto format = schema->find("format"); format != schema->end()) {
    const auto known = pattern_of_format(format->get_ref<const std::string&>());
    if (!known)
      fail(schema, "format " + shorten(nlohmann::json(*format)) + " is not supported; these are: " + format_names());
    plain.patterns.emplace(*known, true);
  }
}

void SchemaReader::read_numbers(const Json* schema, PlainSchema& plain) const {
  const auto raise = [&](const char* keyword, bool strict, std::optional<NumberBound>& bound, int sign) {
    const auto field = schema->find(keyword);
    if (field == schema->end()) return;
    const NumberBound own = bound_of(*field, strict);
    const int order = bound ? sign * compare(own, *bound) : 1;
    if (order > 0 || (order == 0 && strict)) bound = own;
  };
  raise("minimum", false, plain.range.least, 1);
  raise("exclusiveMinimum", true, plain.range.least, 1);
  raise("maximum", false, plain.range.most, -1);
  raise("exclusiveMaximum", true, plain.range.most, -1);
}

Conjunction SchemaReader::property_of(const Conjunction& chosen, const std::string& name) {
  Conjunction all;
  for (const Json* schema : chosen) {
    const auto properties = schema->find("properties");
    if (properties != schema->end() && properties->contains(name))
      add_once(all, child(schema, (*properties)[name], "properties/" + escaped(name)));
    else if (const auto rest = schema->find("additionalProperties"); rest != schema->end())
      add_once(all, child(schema, *rest, "additionalProperties"));
  }
  return all;
}

void SchemaReader::read_objects(const Conjunction& chosen, PlainSchema& plain) {
  std::vector<std::string> names;
  std::set<std::string> known;
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  bool has_properties = false;
  bool says_additional = false;
  Conjunction additional;
  for (const Json* schema : chosen) {
    if (const auto properties = schema->find("properties"); properties != schema->end()) {
      has_properties = true;
      for (const auto& member : properties->items()) add(member.key());
    }
    if (const auto rest = schema->find("additionalProperties"); rest != schema->end()) {
      says_additional = true;
      add_once(additional, child(schema, *rest, "additionalProperties"));
    }
  }
  for (const Json* schema : chosen)
    if (const auto required = schema->find("required"); required != schema->end())
      for (const Json& name : *required) {
        add(name.get<std::string>());
        plain.required.insert(name.get<std::string>());
      }
  for (const std::string& name : names) plain.properties.emplace_back(name, property_of(chosen, name));
  // Where the schema lists properties and says nothing of others, answers have none: nobody asked for them.
  if (says_additional || !has_properties) plain.additional = std::move(additional);
}

void SchemaReader::read_arrays(const Conjunction& chosen, PlainSchema& plain) {
  std::size_t num_prefix = 0;
  for (const Json* schema : chosen) {
    if (const auto prefix = schema->find("prefixItems"); prefix != schema->end())
      num_prefix = std::max(num_prefix, prefix->size());
    plain.min_items = std::max(plain.min_items, size_of(schema, "minItems", 0));
    if (const std::int32_t most = size_of(schema, "maxItems", kUnbounded); most != kUnbounded)
      plain.max_items = plain.max_items == kUnbounded ? most : std::min(most, plain.max_items);
  }
  const auto item = [&](std::size_t index) {
    Conjunction all;
    for (const Json* schema : chosen) {
      const auto prefix = schema->find("prefixItems");
      if (prefix != schema->end() && index < prefix->size())
        add_once(all, child(schema, (*prefix)[index], "prefixItems/" + std::to_string(index)));
      else if (const auto items = schema->find("items"); items != schema->end())
        add_once(all, child(schema, *items, "items"));
    }
    return all;
  };
  for (std::size_t i = 0; i < num_prefix; ++i) plain.prefix.push_back(item(i));
  plain.items = item(num_prefix);
}

const CharacterAutomaton& SchemaReader::automaton_of(const std::pair<std::string, bool>& pattern,
                                                     const Conjunction& from) {
  const auto known = automata_.find(pattern);
  if (known != automata_.end()) return known->second;
  std::string place = from.empty() ? "#" : path_of(from.front());
  for (const Json* schema : from)
    if (schema->contains("pattern") && (*schema)["pattern"] == pattern.first) place = path_of(schema);
  const std::string where = fmt::format("{}: {}: pattern", where_, printable(place, kShown));
  const auto expression = parse_regex(pattern.first, where);
  return automata_
      .emplace(pattern, CharacterAutomaton::of(*expression, pattern.second ? Match::whole : Match::anywhere, builder_))
      .first->second;
}

bool SchemaReader::valid(const Json& value, const Conjunction& all) {
  const std::vector<PlainSchema> alternatives = expand(all);
  return std::ranges::any_of(alternatives, [&](const PlainSchema& one) { return valid_plain(value, one); });
}

bool SchemaReader::valid_plain(const Json& value, const PlainSchema& plain) {
  builder_.check_time();
  if ((type_of(value) & plain.types) == 0) return false;
  if (plain.values && std::ranges::none_of(*plain.values, [&](const Json* one) { return equal(value, *one); }))
    return false;
  if (value.is_number()) return contains(plain.range, value);
  const auto within = [](std::int64_t size, std::int32_t least, std::int32_t most) {
    return size >= least && (most == kUnbounded || size <= most);
  };
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return within(length_of(text), plain.min_length, plain.max_length) &&
           std::ranges::all_of(plain.patterns,
                               [&](const auto& pattern) { return automaton_of(pattern, plain.from).accepts(text); });
  }
  if (value.is_array()) {
    if (!within(std::ssize(value), plain.min_items, plain.max_items)) return false;
    for (std::size_t i = 0; i < value.size(); ++i)
      if (!valid(value[i], i < plain.prefix.size() ? plain.prefix[i] : plain.items)) return false;
  }
  if (value.is_object()) {
    for (const std::string& name : plain.required)
      if (!value.contains(name)) return false;
    for (const auto& [name, member] : value.items()) {
      const auto found = std::ranges::find(plain.properties, name, &std::pair<std::string, Conjunction>::first);
      if (found == plain.properties.end() && !plain.additional) return false;
      if (!valid(member, found == plain.properties.end() ? *plain.additional : found->second)) return false;
    }
  }
  return true;
}

}  // namespace heddle::grammar

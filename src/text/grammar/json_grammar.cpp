#include "text/grammar/json_grammar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema.h"
#include "text/grammar/text_edges.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxIndent = 16;  // spaces behind a line end; a model that only writes spaces must come to an end

class JsonCompiler {
 public:
  JsonCompiler(const Json& schema, const std::string& where)
      : root_(schema), reader_(schema, where, builder_), character_(builder_.rule(any_json_character(builder_))) {}

  Automaton compile(const Frame& frame) {
    const RuleId start = rule_of({&root_});
    while (!open_.empty()) {
      const auto [rule, all] = std::move(open_.front());
      open_.pop_front();
      builder_.define(rule, value(all));
      reader_.check_choices();
    }
    return std::move(builder_).finish(framed(builder_, start, frame));
  }

 private:
  RuleId rule_of(const Conjunction& all) {
    Conjunction key = all;
    std::ranges::sort(key);
    const auto [place, added] = rules_.try_emplace(key, 0);
    if (added) {
      place->second = builder_.declare();
      open_.emplace_back(place->second, all);
    }
    return place->second;
  }

  Fragment value(const Conjunction& all) {
    std::vector<Fragment> parts;
    for (const PlainSchema& plain : reader_.expand(all)) add_plain(plain, parts);
    return builder_.choice(parts);
  }

  void add_plain(const PlainSchema& plain, std::vector<Fragment>& parts) {
    if (plain.values) {
      add_values(*plain.values, parts);
      return;
    }
    std::vector<std::string_view> words;
    if ((plain.types & kNull) != 0) words.emplace_back("null");
    if ((plain.types & kBoolean) != 0) {
      words.emplace_back("true");
      words.emplace_back("false");
    }
    if (!words.empty()) parts.push_back(builder_.any_literal(words));
    if ((plain.types & kFraction) != 0)
      parts.push_back(numbers(builder_, plain.range));
    else if ((plain.types & kInteger) != 0)
      parts.push_back(integers(builder_, plain.range));
    if ((plain.types & kString) != 0) parts.push_back(string(plain));
    if ((plain.types & kArray) != 0) parts.push_back(array(plain));
    if ((plain.types & kObject) != 0) parts.push_back(object(plain));
  }

  // Scalars share their beginnings.
  void add_values(const std::vector<const Json*>& values, std::vector<Fragment>& parts) {
    std::vector<std::string> texts;
    for (const Json* value : values) {
      if (value->is_structured() && !value->empty())
        parts.push_back(constant(*value));
      else
        texts.push_back(value->dump());
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    if (!views.empty()) parts.push_back(builder_.any_literal(views));
  }

  // A value with white space where it may be.
  Fragment constant(const Json& value) {
    if (!value.is_structured() || value.empty()) return builder_.literal(value.dump());
    builder_.check_time();
    Fragment whole = builder_.literal(value.is_array() ? "[" : "{");
    bool first = true;
    for (const auto& [key, member] : value.items()) {
      if (!std::exchange(first, false)) whole = builder_.sequence({whole, builder_.literal(",")});
      whole = builder_.sequence({whole, line_space()});
      if (value.is_object()) whole = builder_.sequence({whole, name(key)});
      whole = builder_.sequence({whole, constant(member)});
    }
    return builder_.sequence({whole, line_space(), builder_.literal(value.is_array() ? "]" : "}")});
  }

  Fragment quoted(Fragment content) {
    return builder_.sequence({builder_.literal("\""), content, builder_.literal("\"")});
  }

  Fragment string(const PlainSchema& plain) {
    if (plain.max_length != kUnbounded && plain.min_length > plain.max_length) return builder_.never();
    if (plain.patterns.empty()) return quoted(builder_.repeat(character_, plain.min_length, plain.max_length));
    std::optional<CharacterAutomaton> all;
    for (const auto& pattern : plain.patterns) {
      const CharacterAutomaton& one = reader_.automaton_of(pattern, plain.from);
      all = all ? *all & one : one;
    }
    if (plain.min_length > 0 || plain.max_length != kUnbounded)
      all = all->of_length(plain.min_length, plain.max_length, builder_);
    return quoted(spell(builder_, *all, Spelling::json));
  }

  // Nothing, a space, or a line end with spaces.
  Fragment line_space() {
    const Fragment space = builder_.never();
    builder_.empty(space.first, space.last);
    builder_.bytes(space.first, ' ', ' ', space.last);
    StateId at = builder_.state();
    builder_.bytes(space.first, '\n', '\n', at);
    builder_.empty(at, space.last);
    for (int i = 0; i < kMaxIndent; ++i) {
      const StateId next = builder_.state();
      builder_.bytes(at, ' ', ' ', next);
      builder_.empty(next, space.last);
      at = next;
    }
    return space;
  }

  Fragment comma() { return builder_.sequence({builder_.literal(","), line_space()}); }

  Fragment colon() { return builder_.sequence({builder_.literal(":"), builder_.optional(builder_.literal(" "))}); }

  Fragment name(const std::string& name) { return builder_.sequence({builder_.literal(Json(name).dump()), colon()}); }

  void connect(StateId from, Fragment part, StateId to) {
    builder_.empty(from, part.first);
    builder_.empty(part.last, to);
  }

  Fragment array(const PlainSchema& plain) {
    const bool bounded = plain.max_items != kUnbounded;
    if (bounded && plain.min_items > plain.max_items) return builder_.never();
    const Fragment items = builder_.never();
    const auto num_prefix = static_cast<std::int32_t>(plain.prefix.size());
    StateId at = items.first;
    std::int32_t count = 0;
    // The items with schemas of their own, and at least the first one, which no comma precedes.
    for (; count < std::max(num_prefix, 1) && !(bounded && count == plain.max_items); ++count) {
      if (count >= plain.min_items && count > 0) builder_.empty(at, items.last);
      const StateId next = builder_.state();
      const RuleId item = rule_of(count < num_prefix ? plain.prefix[static_cast<std::size_t>(count)] : plain.items);
      const Fragment call = builder_.call(item);
      connect(at, count == 0 ? call : builder_.sequence({comma(), call}), next);
      at = next;
    }
    if (count > 0 && bounded && count == plain.max_items) {
      builder_.empty(at, items.last);
    } else if (count > 0) {
      const RuleId more = builder_.rule(builder_.sequence({comma(), builder_.call(rule_of(plain.items))}));
      connect(
          at,
          builder_.repeat(more, std::max(0, plain.min_items - count), bounded ? plain.max_items - count : kUnbounded),
          items.last);
    }
    return bracketed('[', items, plain.min_items == 0, ']');
  }

  // `content`, or nothing if it `may_be_empty`, between brackets.
  Fragment bracketed(char open, Fragment content, bool may_be_empty, char close) {
    const Fragment whole = builder_.never();
    const StateId inside = builder_.state();
    connect(whole.first, builder_.sequence({builder_.literal({&open, 1}), line_space()}), inside);
    const Fragment end = builder_.literal({&close, 1});
    if (may_be_empty) builder_.empty(inside, end.first);
    connect(inside, builder_.sequence({content, line_space()}), end.first);
    builder_.empty(end.last, whole.last);
    return whole;
  }

  // Members in the order of the schema, others behind them. Two chains of states: before the first member, which no
  // comma precedes, and behind one.
  Fragment object(const PlainSchema& plain) {
    const Fragment members = builder_.never();
    StateId before = members.first;
    StateId behind = builder_.state();
    bool may_be_empty = true;
    for (const auto& [key, all] : plain.properties) {
      const RuleId rule = rule_of(all);
      const bool required = plain.required.contains(key);
      const StateId next_before = builder_.state();
      const StateId next_behind = builder_.state();
      connect(behind, builder_.sequence({comma(), name(key), builder_.call(rule)}), next_behind);
      if (!required) builder_.empty(behind, next_behind);
      if (may_be_empty) {
        connect(before, builder_.sequence({name(key), builder_.call(rule)}), next_behind);
        if (!required) builder_.empty(before, next_before);
      }
      may_be_empty = may_be_empty && !required;
      before = next_before;
      behind = next_behind;
    }
    builder_.empty(behind, members.last);
    if (plain.additional) add_others(plain, before, behind, may_be_empty, members.last);
    return bracketed('{', members, may_be_empty, '}');
  }

  void add_others(const PlainSchema& plain, StateId before, StateId behind, bool may_be_first, StateId last) {
    std::vector<std::string_view> names;
    for (const auto& member : plain.properties) names.push_back(member.first);
    const Fragment key = names.empty() ? builder_.repeat(character_, 0, kUnbounded)
                                       : spell(builder_, CharacterAutomaton::all_but(names), Spelling::json);
    const RuleId other =
        builder_.rule(builder_.sequence({quoted(key), colon(), builder_.call(rule_of(*plain.additional))}));
    const RuleId more = builder_.rule(builder_.sequence({comma(), builder_.call(other)}));
    connect(behind, builder_.repeat(more, 0, kUnbounded), last);
    if (may_be_first)
      connect(before, builder_.sequence({builder_.call(other), builder_.repeat(more, 0, kUnbounded)}), last);
  }

  const Json& root_;
  AutomatonBuilder builder_;
  SchemaReader reader_;
  RuleId character_;
  std::map<Conjunction, RuleId> rules_;
  std::deque<std::pair<RuleId, Conjunction>> open_;  // rules without a body
};

}  // namespace

Automaton compile_schema(const nlohmann::ordered_json& schema, const Frame& frame, const std::string& where) {
  return JsonCompiler(schema, where).compile(frame);
}

}  // namespace heddle::grammar

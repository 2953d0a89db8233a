#include "text/chat_template/sequence_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "text/chat_template/interpreter.h"
#include "text/chat_template/python.h"
#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

enum class Case { sensitive, ignored };

Case case_of(const Value& sensitive) {
  return truth(sensitive) ? Case::sensitive : Case::ignored;
}

// The attribute= of jinja2's filters: "a.b.0" looks up a, then b, then 0.
class Getter {
 public:
  Getter(Interpreter& in, const Value& attribute, Case letter_case = Case::sensitive, Value fallback = {})
      : in_(in), letter_case_(letter_case), fallback_(std::move(fallback)) {
    if (attribute.is_none()) return;
    if (!attribute.is_string()) {
      parts_.push_back(attribute);
      return;
    }
    for (const std::string_view part : split(attribute.string(), ".", -1)) {
      std::int64_t number = 0;
      const bool digits =
          !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (digits && std::from_chars(part.data(), part.data() + part.size(), number).ec == std::errc())
        parts_.emplace_back(number);
      else
        parts_.push_back(in.text(std::string(part)));
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = in_.subscript(item, part);
      if (item.is_undefined() && !fallback_.is_none()) item = fallback_;
    }
    if (letter_case_ == Case::ignored && item.is_string()) item = in_.text(lower(item.string()));
    return item;
  }

 private:
  Interpreter& in_;
  std::vector<Value> parts_;
  Case letter_case_;
  Value fallback_;
};

// A stable sort by keys whose comparison may throw.
std::vector<Value> sorted(Interpreter& in, const std::vector<Value>& items, const std::vector<Value>& keys,
                          bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (reverse)
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return less(in.meter(), keys[b], keys[a]); });
  else
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return less(in.meter(), keys[a], keys[b]); });
  std::vector<Value> result;
  result.reserve(items.size());
  for (const std::size_t i : order) result.push_back(items[i]);
  return result;
}

Value filter_list(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("list", std::move(arguments), {});
  return Value::list(in.meter(), iterate(in.meter(), value));
}

Value filter_first(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("first", std::move(arguments), {});
  if (value.is(Kind::iterator)) {
    Iterator& iterator = value.object<Iterator>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  }
  if (value.is(Kind::list) || value.is(Kind::tuple) || value.is_string())
    if (std::optional<Value> first = item(in.meter(), value, Value(std::int64_t{0}))) return *std::move(first);
  const std::vector<Value> items = iterate(in.meter(), value);
  return items.empty() ? Value::undefined(in.meter(), "No first item, sequence was empty.") : items.front();
}

Value filter_last(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("last", std::move(arguments), {});
  if (!length(value)) throw TemplateError(fmt::format("'{}' object is not reversible", type_name(value)));
  const std::vector<Value> items = iterate(in.meter(), value);
  return items.empty() ? Value::undefined(in.meter(), "No last item, sequence was empty.") : items.back();
}

Value filter_join(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("join", std::move(arguments), {"d", "attribute"});
  const std::string separator = to_text(in.meter(), bound.get(0, in.text("")));
  const Getter get(in, bound.get(1));
  std::string result;
  bool first = true;
  for (const Value& item : iterate(in.meter(), value)) {
    const std::string text = to_text(in.meter(), get(item));
    in.meter().step_bytes(separator.size());
    in.meter().expect(result.size() + separator.size() + text.size());
    if (!first) result += separator;
    first = false;
    result += text;
  }
  return in.text(std::move(result));
}

Value filter_reverse(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("reverse", std::move(arguments), {});
  std::vector<Value> items = iterate(in.meter(), value);
  std::reverse(items.begin(), items.end());
  if (value.is_string()) {
    std::string text;
    for (const Value& one : items) text += one.string();
    return in.text(std::move(text));
  }
  if (value.is(Kind::iterator)) return Value::list(in.meter(), std::move(items));
  return Value::iterator(in.meter(), std::move(items), "list_reverseiterator");
}

Value filter_sort(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  const Case letter_case = case_of(bound.get(1));
  const Value attribute = bound.get(2);
  std::vector<Getter> getters;
  if (attribute.is_string()) {
    for (const std::string_view part : split(attribute.string(), ",", -1))
      getters.emplace_back(in, in.text(std::string(part)), letter_case);
  } else {
    getters.emplace_back(in, attribute, letter_case);
  }
  const std::vector<Value> items = iterate(in.meter(), value);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> parts;
    parts.reserve(getters.size());
    for (const Getter& get : getters) parts.push_back(get(item));
    keys.push_back(Value::list(in.meter(), std::move(parts)));
  }
  return Value::list(in.meter(), sorted(in, items, keys, truth(bound.get(0))));
}

Value filter_dictsort(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const Value by = bound.get(1, in.text("key"));
  const bool by_value = by.is_string() && by.string() == "value";
  if (!by_value && !(by.is_string() && by.string() == "key"))
    throw TemplateError("You can only sort by either \"key\" or \"value\"");
  require_defined(value);
  if (!value.is(Kind::dict)) throw TemplateError(fmt::format("'{}' object has no attribute 'items'", type_name(value)));
  const Getter key(in, Value(), case_of(bound.get(0)));
  std::vector<Value> items, keys;
  for (const auto& [name, member] : value.dict().members) {
    items.push_back(Value::tuple(in.meter(), {name, member}));
    keys.push_back(key(by_value ? member : name));
  }
  return Value::list(in.meter(), sorted(in, items, keys, truth(bound.get(2))));
}

Value filter_unique(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("unique", std::move(arguments), {"case_sensitive", "attribute"});
  const Getter get(in, bound.get(1), case_of(bound.get(0)));
  std::set<Value, KeyLess> seen;
  std::vector<Value> result;
  for (const Value& item : iterate(in.meter(), value)) {
    const Value key = get(item);
    key_less(key, key);  // throws on unhashable keys
    if (seen.insert(key).second) result.push_back(item);
  }
  return Value::iterator(in.meter(), std::move(result));
}

template <bool greatest>
Value filter_extreme(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound(greatest ? "max" : "min", std::move(arguments), {"case_sensitive", "attribute"});
  const std::vector<Value> items = iterate(in.meter(), value);
  if (items.empty()) return Value::undefined(in.meter(), "No aggregated item, sequence was empty.");
  const Getter get(in, bound.get(1), case_of(bound.get(0)));
  Value best = items[0], best_key = get(items[0]);
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value key = get(items[i]);
    if (ordered(in.meter(), key, best_key, greatest ? Order::greater : Order::less)) {
      best = items[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value filter_sum(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("sum", std::move(arguments), {"attribute", "start"});
  const Getter get(in, bound.get(0));
  Value total = bound.get(1, Value(std::int64_t{0}));
  if (total.is_string()) throw TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(in.meter(), value)) total = add(in.meter(), total, get(item));
  return total;
}

Value filter_batch(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("batch", std::move(arguments), {"linecount", "fill_with"}, 1);
  const Value size = bound.get(0);
  const Value fill = bound.get(1);
  std::vector<Value> rows, row;
  for (const Value& item : iterate(in.meter(), value)) {
    if (equal(in.meter(), Value(static_cast<std::int64_t>(row.size())), size))
      rows.push_back(Value::list(in.meter(), std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const auto filled = static_cast<std::int64_t>(row.size());
    if (!fill.is_none() && less(in.meter(), Value(filled), size)) {
      const std::int64_t wanted = as_index(size);
      in.meter().expect(static_cast<std::size_t>(std::min<std::int64_t>(wanted, INT64_MAX / 64)) * sizeof(Value));
      row.resize(static_cast<std::size_t>(wanted), fill);
    }
    rows.push_back(Value::list(in.meter(), std::move(row)));
  }
  return Value::iterator(in.meter(), std::move(rows));
}

Value filter_slice(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("slice", std::move(arguments), {"slices", "fill_with"}, 1);
  const std::vector<Value> items = iterate(in.meter(), value);
  const std::int64_t slices = as_index(bound.get(0));
  if (slices == 0) throw TemplateError("integer division or modulo by zero");
  const Value fill = bound.get(1);
  std::vector<Value> columns;
  const auto size = static_cast<std::int64_t>(items.size());
  std::int64_t at = 0;
  for (std::int64_t column = 0; column < slices; ++column) {
    const bool longer = column < size % slices;
    const std::int64_t end = at + size / slices + longer;
    std::vector<Value> part(items.begin() + at, items.begin() + end);
    if (!fill.is_none() && !longer) part.push_back(fill);
    columns.push_back(Value::list(in.meter(), std::move(part)));
    at = end;
  }
  return Value::iterator(in.meter(), std::move(columns));
}

Value filter_groupby(Interpreter& in, const Value& value, CallArguments arguments) {
  const Bound bound("groupby", std::move(arguments), {"attribute", "default", "case_sensitive"}, 1);
  const Getter key(in, bound.get(0), case_of(bound.get(2)), bound.get(1)),
      plain(in, bound.get(0), Case::sensitive, bound.get(1));
  const std::vector<Value> items = iterate(in.meter(), value);
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) keys.push_back(key(item));
  static constexpr std::string_view kNames[] = {"grouper", "list"};
  std::vector<Value> groups, group;
  const auto close = [&] {
    if (group.empty()) return;
    const Value name = plain(group[0]);
    groups.push_back(Value::tuple(in.meter(), {name, Value::list(in.meter(), std::exchange(group, {}))}, kNames));
  };
  for (const Value& item : sorted(in, items, keys, false)) {
    if (!group.empty() && !equal(in.meter(), key(group[0]), key(item))) close();
    group.push_back(item);
  }
  close();
  return Value::list(in.meter(), std::move(groups));
}

Value filter_map(Interpreter& in, const Value& value, CallArguments arguments) {
  if (!truth(value)) return Value::iterator(in.meter(), {});
  std::vector<Value> result;
  const bool by_attribute =
      arguments.positional.empty() && std::any_of(arguments.keyword.begin(), arguments.keyword.end(),
                                                  [](const auto& keyword) { return keyword.first == "attribute"; });
  if (by_attribute) {
    const Bound bound("map", std::move(arguments), {"attribute", "default"});
    const Getter get(in, bound.get(0), Case::sensitive, bound.get(1));
    for (const Value& item : iterate(in.meter(), value)) result.push_back(get(item));
    return Value::iterator(in.meter(), std::move(result));
  }
  if (arguments.positional.empty()) throw TemplateError("map requires a filter argument");
  const Value name = arguments.positional[0];
  if (!name.is_string()) throw TemplateError(fmt::format("No filter named {}.", to_repr(in.meter(), name)));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : iterate(in.meter(), value))
    result.push_back(in.apply_filter(name.string(), item, arguments));
  return Value::iterator(in.meter(), std::move(result));
}

enum class Keep { passing, failing };
enum class Of { item, attribute };

template <Keep keep, Of of>
Value filter_select(Interpreter& in, const Value& value, CallArguments arguments) {
  if (!truth(value)) return Value::iterator(in.meter(), {});
  auto& positional = arguments.positional;
  Value attribute;
  if (of == Of::attribute) {
    if (positional.empty()) throw TemplateError("Missing parameter for attribute name");
    attribute = positional[0];
    positional.erase(positional.begin());
  }
  const Getter get(in, attribute);
  std::optional<Value> test;
  if (!positional.empty()) {
    test = positional[0];
    positional.erase(positional.begin());
    if (!test->is_string()) throw TemplateError(fmt::format("No test named {}.", to_repr(in.meter(), *test)));
  }
  std::vector<Value> result;
  for (const Value& item : iterate(in.meter(), value)) {
    const Value tested = get(item);
    const bool passes = test ? in.apply_test(test->string(), tested, arguments) : truth(tested);
    if (passes == (keep == Keep::passing)) result.push_back(item);
  }
  return Value::iterator(in.meter(), std::move(result));
}

}  // namespace

std::map<std::string_view, Filter> sequence_filters() {
  return {
      {"batch", filter_batch},
      {"dictsort", filter_dictsort},
      {"first", filter_first},
      {"groupby", filter_groupby},
      {"join", filter_join},
      {"last", filter_last},
      {"list", filter_list},
      {"map", filter_map},
      {"max", filter_extreme<true>},
      {"min", filter_extreme<false>},
      {"reject", filter_select<Keep::failing, Of::item>},
      {"rejectattr", filter_select<Keep::failing, Of::attribute>},
      {"reverse", filter_reverse},
      {"select", filter_select<Keep::passing, Of::item>},
      {"selectattr", filter_select<Keep::passing, Of::attribute>},
      {"slice", filter_slice},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
}

}  // namespace heddle::jinja

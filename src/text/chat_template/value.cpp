#include "text/chat_template/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_template/text.h"

namespace heddle::jinja {
namespace {

constexpr int kMaxValueDepth = 200;
constexpr std::size_t kIndexed = 8;  // a dict with at least this many members has an index

std::size_t bytes_of(const std::vector<Value>& items) {
  return 64 + items.size() * sizeof(Value);
}

// Classes of keys that are never equal to each other.
int key_class(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return 0;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return 1;
    case Kind::string:
      return 2;
    case Kind::tuple:
      return 3;
    case Kind::undefined:
      return 4;
    case Kind::list:
    case Kind::dict:
    case Kind::view:
      throw TemplateError(fmt::format("unhashable type: '{}'", type_name(value)));
    default:
      return 5;
  }
}

bool number_less(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  return a.real() < b.real();
}

}  // namespace

int depth_over(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth + 1 > kMaxValueDepth)
    throw TemplateError(fmt::format("a value nests deeper than max_value_depth = {} levels", kMaxValueDepth));
  return depth + 1;
}

Value Value::text(Meter* meter, std::string text, bool markup) {
  return {Kind::string, std::make_shared<Text>(meter, std::move(text), markup)};
}
Value Value::list(Meter& meter, std::vector<Value> items) {
  return {Kind::list, std::make_shared<Sequence>(&meter, std::move(items))};
}
Value Value::tuple(Meter& meter, std::vector<Value> items, std::span<const std::string_view> names) {
  return {Kind::tuple, std::make_shared<Sequence>(&meter, std::move(items), names)};
}
Value Value::iterator(Meter& meter, std::vector<Value> items, std::string_view type) {
  return {Kind::iterator, std::make_shared<Iterator>(&meter, std::move(items), std::string(type))};
}
Value Value::undefined(Meter& meter, std::string message) {
  return {Kind::undefined, std::make_shared<Undefined>(&meter, std::move(message))};
}

std::string_view Value::string() const {
  return object<Text>().value;
}
const Text& Value::as_text() const {
  return object<Text>();
}
const std::vector<Value>& Value::items() const {
  return object<Sequence>().items;
}
const Dict& Value::dict() const {
  return object<Dict>();
}

Text::Text(Meter* meter, std::string text, bool safe)
    : Object(meter, 64 + text.size()), value(std::move(text)), length(count_code_points(value)), markup(safe) {}

Sequence::Sequence(Meter* meter, std::vector<Value> values, std::span<const std::string_view> names_of_them)
    : Object(meter, bytes_of(values), depth_over(values)), items(std::move(values)), names(names_of_them) {}

Iterator::Iterator(Meter* meter, std::vector<Value> values, std::string name)
    : Object(meter, bytes_of(values), depth_over(values)), items(std::move(values)), type(std::move(name)) {}

Range::Range(Meter* meter, std::int64_t from, std::int64_t to, std::int64_t by)
    : Object(meter, 64), start(from), stop(to), step(by) {
  const bool empty = step > 0 ? stop <= start : stop >= start;
  const auto unsigned_difference = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
  };
  const std::uint64_t span = step > 0 ? unsigned_difference(stop, start) : unsigned_difference(start, stop);
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : unsigned_difference(0, step);
  const std::uint64_t count = empty ? 0 : (span - 1) / stride + 1;
  // Python's sandbox has this limit too.
  constexpr std::uint64_t kMaxRange = 100'000;
  if (count > kMaxRange)
    throw TemplateError(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  length = static_cast<std::int64_t>(count);
}

Dict::Dict(Meter* meter, Members all)
    : Object(meter, 64 + all.size() * (2 * sizeof(Value) + 64), 1), members(std::move(all)) {
  // Checked on insertion: equal keys are rare, and few members need no index.
  Members unique;
  unique.reserve(members.size());
  std::map<Value, std::size_t, KeyLess> index;
  const bool indexed = members.size() > kIndexed;
  std::vector<Value> parts;
  parts.reserve(2 * members.size());
  for (auto& [key, value] : members) {
    parts.push_back(key);
    parts.push_back(value);
    key_less(key, key);  // throws on invalid keys
    std::size_t place = unique.size();
    if (indexed) {
      place = index.emplace(key, place).first->second;
    } else {
      for (std::size_t i = 0; i < unique.size(); ++i)
        if (!key_less(unique[i].first, key) && !key_less(key, unique[i].first)) place = i;
    }
    if (place < unique.size())
      unique[place].second = std::move(value);
    else
      unique.emplace_back(std::move(key), std::move(value));
  }
  depth = depth_over(parts);
  members = std::move(unique);
  index_ = std::move(index);
}

const Value* Dict::find(const Value& key) const {
  key_less(key, key);
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &members[found->second].second;
  }
  for (const auto& [name, value] : members)
    if (!key_less(name, key) && !key_less(key, name)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value::text(nullptr, std::string(key)));
  for (const auto& [name, value] : members)
    if (name.is_string() && name.string() == key) return &value;
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

bool key_less(const Value& a, const Value& b) {
  const int class_a = key_class(a), class_b = key_class(b);
  if (class_a != class_b) return class_a < class_b;
  switch (class_a) {
    case 1:
      return number_less(a, b);
    case 2:
      return a.string() < b.string();
    case 3:
      return std::lexicographical_compare(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                                          KeyLess());
    case 5:
      return std::less<>()(a.shared().get(), b.shared().get());
    default:
      return false;
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.as_text().markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::iterator:
      return value.object<Iterator>().type;
    case Kind::view:
      switch (value.object<View>().part) {
        case View::Part::keys:
          return "dict_keys";
        case View::Part::values:
          return "dict_values";
        case View::Part::items:
          return "dict_items";
      }
      return "dict_items";
    case Kind::range:
      return "range";
    case Kind::name_space:
      return "Namespace";
    case Kind::macro:
      return "Macro";
    case Kind::loop:
      return "LoopContext";
    case Kind::method:
      return "builtin_function_or_method";
    case Kind::function:
      return "function";
    case Kind::cycler:
      return "Cycler";
    case Kind::joiner:
      return "Joiner";
  }
  return "object";
}

std::optional<std::int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<std::int64_t>(value.as_text().length);
    case Kind::list:
    case Kind::tuple:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<std::int64_t>(value.dict().members.size());
    case Kind::view:
      return static_cast<std::int64_t>(value.object<View>().dict.dict().members.size());
    case Kind::range:
      return value.object<Range>().length;
    default:
      return std::nullopt;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    default:
      return length(value).value_or(1) != 0;
  }
}

bool iterable(const Value& value) {
  return length(value) || value.is(Kind::iterator);
}

std::vector<Value> iterate(Meter& meter, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::list:
    case Kind::tuple:
      meter.step(value.items().size());
      return value.items();
    case Kind::string: {
      const std::string_view text = value.string();
      meter.expect(value.as_text().length * (sizeof(Value) + 128));
      std::vector<Value> items;
      items.reserve(value.as_text().length);
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = code_point_size(text, at);
        items.push_back(Value::text(&meter, std::string(text.substr(at, size))));
        at += size;
      }
      return items;
    }
    case Kind::dict: {
      const auto& members = value.dict().members;
      meter.step(members.size());
      std::vector<Value> items;
      items.reserve(members.size());
      for (const auto& member : members) items.push_back(member.first);
      return items;
    }
    case Kind::view: {
      const View& view = value.object<View>();
      const auto& members = view.dict.dict().members;
      meter.step(members.size());
      std::vector<Value> items;
      items.reserve(members.size());
      for (const auto& [key, member] : members)
        items.push_back(view.part == View::Part::keys     ? key
                        : view.part == View::Part::values ? member
                                                          : Value::tuple(meter, {key, member}));
      return items;
    }
    case Kind::range: {
      const Range& range = value.object<Range>();
      meter.step(static_cast<std::size_t>(range.length));
      std::vector<Value> items;
      items.reserve(static_cast<std::size_t>(range.length));
      for (std::int64_t i = 0; i < range.length; ++i) items.emplace_back(range.start + i * range.step);
      return items;
    }
    case Kind::iterator: {
      Iterator& iterator = value.object<Iterator>();
      std::vector<Value> items(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                               iterator.items.end());
      meter.step(items.size());
      iterator.next = iterator.items.size();
      return items;
    }
    default:
      throw TemplateError(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

}  // namespace heddle::jinja

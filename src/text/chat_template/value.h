// The values of a template: the subset of Python's that templates use. All but namespaces, loops, iterators, cyclers
// and joiners are immutable, so values share their parts. Integers have 64 bits; overflow is an error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/meter.h"

namespace heddle::jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  iterator,  // the result of map, select and the like: can be iterated once
  view,      // keys(), values(), items() of a dict
  range,
  name_space,  // namespace()
  macro,
  loop,
  method,    // a method and its object
  function,  // a global function
  cycler,
  joiner,
};

struct Object {
  Object(Meter* meter, std::size_t bytes, int nesting = 0) : charge(meter, bytes), depth(nesting) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  Charge charge;
  int depth;  // of nesting below this; bounded, which bounds recursion over a value
};

class Value;
struct Text;
struct Sequence;
struct Dict;
struct Undefined;

// A small handle; copies share the object.
class Value {
 public:
  Value() = default;  // None
  explicit Value(bool value) : kind_(Kind::boolean), integer_(value) {}
  explicit Value(std::int64_t value) : kind_(Kind::integer), integer_(value) {}
  explicit Value(double value) : kind_(Kind::real), real_(value) {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  static Value text(Meter* meter, std::string text, bool markup = false);
  static Value list(Meter& meter, std::vector<Value> items);
  // With `names` it is a namedtuple; they must outlive it.
  static Value tuple(Meter& meter, std::vector<Value> items, std::span<const std::string_view> names = {});
  static Value iterator(Meter& meter, std::vector<Value> items, std::string_view type = "generator");
  // `message` is the error when it is used; `security`: the sandbox forbids the access.
  static Value undefined(Meter& meter, std::string message);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  bool boolean() const { return integer_ != 0; }
  std::int64_t integer() const { return integer_; }  // of integers and booleans
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  std::string_view string() const;
  const Text& as_text() const;
  const std::vector<Value>& items() const;  // of a list or tuple
  const Dict& dict() const;

  template <class T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const std::shared_ptr<Object>& shared() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  Kind kind_ = Kind::none;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct Text : Object {
  Text(Meter* meter, std::string text, bool safe);
  std::string value;
  std::size_t length;  // in code points
  bool markup;         // Markup, the result of |safe and |escape
  bool ascii() const { return length == value.size(); }
};

struct Undefined : Object {
  Undefined(Meter* meter, std::string text) : Object(meter, text.size() + 64), message(std::move(text)) {}
  std::string message;
};

struct Sequence : Object {
  Sequence(Meter* meter, std::vector<Value> values, std::span<const std::string_view> names_of_them = {});
  std::vector<Value> items;
  std::span<const std::string_view> names;
};

struct Iterator : Object {
  Iterator(Meter* meter, std::vector<Value> values, std::string name);
  std::vector<Value> items;
  std::string type;
  std::size_t next = 0;
};

struct Range : Object {
  Range(Meter* meter, std::int64_t from, std::int64_t to, std::int64_t by);
  std::int64_t start, stop, step, length;
};

// An order for keys of dicts in which keys that are equal in Python (1, 1.0, True) are equal. Throws TemplateError on
// unhashable values.
bool key_less(const Value& a, const Value& b);
struct KeyLess {
  bool operator()(const Value& a, const Value& b) const { return key_less(a, b); }
};

// Keeps the order of insertion.
struct Dict : Object {
  using Members = std::vector<std::pair<Value, Value>>;
  // A later member replaces an earlier one with the same key, at the position of the earlier one.
  Dict(Meter* meter, Members all);
  static Value make(Meter& meter, Members members) {
    return {Kind::dict, std::make_shared<Dict>(&meter, std::move(members))};
  }

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  Members members;

 private:
  std::map<Value, std::size_t, KeyLess> index_;  // of members, used where a linear search would be slow
};

struct View : Object {
  enum class Part { keys, values, items };
  View(Meter* meter, Value of, Part what) : Object(meter, 64, of.depth() + 2), dict(std::move(of)), part(what) {}
  Value dict;
  Part part;
};

struct Namespace : Object {
  explicit Namespace(Meter* meter) : Object(meter, 128) {}
  std::vector<std::pair<std::string, Value>> attributes;
  std::vector<std::unique_ptr<Charge>> charges;
  const Value* find(std::string_view name) const;
};

struct Method : Object {
  Method(Meter* meter, Value of, std::string called)
      : Object(meter, 96, of.depth() + 1), self(std::move(of)), name(std::move(called)) {}
  Value self;
  std::string name;
};

struct Function : Object {
  Function(Meter* meter, std::string called) : Object(meter, 64), name(std::move(called)) {}
  std::string name;
};

struct Cycler : Object {
  Cycler(Meter* meter, Value tuple) : Object(meter, 64, tuple.depth() + 1), items(std::move(tuple)) {}
  Value items;
  std::size_t position = 0;
};

struct Joiner : Object {
  Joiner(Meter* meter, Value between) : Object(meter, 64), separator(std::move(between)) {}
  Value separator;
  bool used = false;
};

// 1 + the maximum depth of `items`; throws TemplateError beyond the limit of nesting.
int depth_over(const std::vector<Value>& items);

// Python's name of the type: "str", "NoneType".
std::string_view type_name(const Value& value);

bool truth(const Value& value);
// len(); nothing where Python has none.
std::optional<std::int64_t> length(const Value& value);
// All elements, as in a loop; consumes an iterator. Throws TemplateError when `value` is not iterable.
std::vector<Value> iterate(Meter& meter, const Value& value);
bool iterable(const Value& value);

}  // namespace heddle::jinja

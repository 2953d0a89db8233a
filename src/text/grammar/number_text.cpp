#include "text/grammar/number_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace heddle::grammar {
namespace {

constexpr int kIntegerDigits = 18;
constexpr int kFractionDigits = 17;
constexpr int kDoubleDigits = 15;          // that survive a conversion to double and back
constexpr int kBoundedFractionDigits = 9;  // with bounds, unless they have more themselves

const std::string kLargest(kIntegerDigits, '9');

std::uint8_t digit_byte(int value) {
  return static_cast<std::uint8_t>('0' + value);
}

int digit_at(const std::string& digits, std::size_t place) {
  return place < digits.size() ? digits[place] - '0' : 0;
}

// Order of whole numbers as digits.
int compare_digits(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

std::string plus_one(std::string digits) {
  for (std::size_t place = digits.size(); place-- > 0;) {
    if (digits[place] != '9') {
      ++digits[place];
      return digits;
    }
    digits[place] = '0';
  }
  return "1" + digits;
}

std::string minus_one(std::string digits) {  // of a positive number
  for (std::size_t place = digits.size(); place-- > 0;) {
    if (digits[place] != '0') {
      --digits[place];
      break;
    }
    digits[place] = '9';
  }
  const std::size_t begin = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return digits.substr(begin);
}

// Numbers of digits.size() digits from `least` to `most`, which have as many.
void add_digits(AutomatonBuilder& builder, const Fragment& whole, const std::string& least, const std::string& most) {
  std::map<std::tuple<std::size_t, bool, bool>, StateId> known;
  std::vector<std::tuple<std::size_t, bool, bool>> open{{0, true, true}};
  known[open.front()] = whole.first;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const auto [place, at_least, at_most] = open[i];
    const StateId from = known.at(open[i]);
    if (place == least.size()) {
      builder.empty(from, whole.last);
      continue;
    }
    const int low = at_least ? digit_at(least, place) : 0;
    const int high = at_most ? digit_at(most, place) : 9;
    for (int digit = low; digit <= high; ++digit) {
      const std::tuple next(place + 1, at_least && digit == low, at_most && digit == high);
      const auto [found, added] = known.try_emplace(next, 0);
      if (added) {
        found->second = builder.state();
        open.push_back(next);
      }
      builder.bytes(from, digit_byte(digit), digit_byte(digit), found->second);
    }
  }
}

// Whole numbers of at most 18 digits, without a sign.
Fragment digits_between(AutomatonBuilder& builder, const std::string& least, const std::string& most) {
  const Fragment whole = builder.never();
  const std::string& top = compare_digits(most, kLargest) > 0 ? kLargest : most;
  for (std::size_t length = least.size(); length <= top.size(); ++length) {
    const std::string first = std::max(least, "1" + std::string(length - 1, '0'),
                                       [&](const auto& a, const auto& b) { return compare_digits(a, b) < 0; });
    const std::string low = length == 1 ? least : first;
    const std::string high = length == top.size() ? top : std::string(length, '9');
    if (low.size() != length || compare_digits(low, high) > 0) continue;
    const Fragment part = builder.never();
    add_digits(builder, part, low, high);
    builder.empty(whole.first, part.first);
    builder.empty(part.last, whole.last);
  }
  return whole;
}

bool is_zero(const NumberBound& bound) {
  return bound.integer == "0" && bound.fraction.empty();
}

// A limit of numbers without a sign.
using Magnitude = NumberBound;

int compare_magnitudes(const Magnitude& a, const Magnitude& b) {
  const int integers = compare_digits(a.integer, b.integer);
  return integers != 0 ? integers : a.fraction.compare(b.fraction);
}

// What may follow the digits before the point: nothing, or a point and 1 to num_digits digits, so that the fraction lies
// within the limits that are given.
class Fractions {
 public:
  Fractions(AutomatonBuilder& builder, const Magnitude* least, const Magnitude* most, int num_digits)
      : builder_(builder), least_(least), most_(most), num_digits_(static_cast<std::size_t>(num_digits)) {}

  Fragment build() {
    const Fragment whole = builder_.never();
    if (may_end(0, least_ != nullptr, most_ != nullptr)) builder_.empty(whole.first, whole.last);
    if (num_digits_ == 0) return whole;
    const StateId point = builder_.state();
    builder_.bytes(whole.first, '.', '.', point);
    open_.push_back({0, least_ != nullptr, most_ != nullptr});
    known_[open_.front()] = point;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const auto [place, at_least, at_most] = open_[i];
      const StateId from = known_.at(open_[i]);
      if (place > 0 && may_end(place, at_least, at_most)) builder_.empty(from, whole.last);
      if (place < num_digits_) add_digit(from, place, at_least, at_most);
    }
    return whole;
  }

 private:
  using Key = std::tuple<std::size_t, bool, bool>;

  // Whether zeros from `place` on keep the number within its limits.
  bool may_end(std::size_t place, bool at_least, bool at_most) const {
    if (at_least && (place < least_->fraction.size() || least_->strict)) return false;
    return !(at_most && place >= most_->fraction.size() && most_->strict);
  }

  void add_digit(StateId from, std::size_t place, bool at_least, bool at_most) {
    const int low = at_least ? digit_at(least_->fraction, place) : 0;
    const int high = at_most ? digit_at(most_->fraction, place) : 9;
    for (int digit = low; digit <= high; ++digit) {
      const Key next(place + 1, at_least && digit == low, at_most && digit == high);
      const auto [found, added] = known_.try_emplace(next, 0);
      if (added) {
        found->second = builder_.state();
        open_.push_back(next);
      }
      builder_.bytes(from, digit_byte(digit), digit_byte(digit), found->second);
    }
  }

  AutomatonBuilder& builder_;
  const Magnitude* least_;
  const Magnitude* most_;
  std::size_t num_digits_;
  std::map<Key, StateId> known_;
  std::vector<Key> open_;
};

Fragment magnitudes(AutomatonBuilder& builder, const Magnitude& least, const std::optional<Magnitude>& most,
                    int num_digits) {
  if (most && compare_magnitudes(least, *most) > 0) return builder.never();
  const auto fraction = [&](const Magnitude* low, const Magnitude* high) {
    return Fractions(builder, low, high, num_digits).build();
  };
  if (most && least.integer == most->integer)
    return builder.sequence({builder.literal(least.integer), fraction(&least, &*most)});
  std::vector<Fragment> parts{builder.sequence({builder.literal(least.integer), fraction(&least, nullptr)})};
  const std::string between = plus_one(least.integer);
  const std::string end = most ? minus_one(most->integer) : kLargest;
  if (compare_digits(between, end) <= 0)
    parts.push_back(builder.sequence({digits_between(builder, between, end), fraction(nullptr, nullptr)}));
  if (most) parts.push_back(builder.sequence({builder.literal(most->integer), fraction(nullptr, &*most)}));
  return builder.choice(parts);
}

int fraction_digits(const NumberRange& range) {
  int num_digits = kBoundedFractionDigits;
  std::size_t own = 0;
  for (const auto& bound : {range.least, range.most}) {
    if (!bound) continue;
    num_digits = std::min(num_digits, std::max(0, kDoubleDigits - static_cast<int>(bound->integer.size())));
    if (!bound->fraction.empty()) own = std::max(own, bound->fraction.size() + 1);
  }
  return std::max(num_digits, static_cast<int>(own));
}

Fragment free_number(AutomatonBuilder& builder) {
  const RuleId digit = builder.rule(builder.one_of('0', '9'));
  const Fragment first[] = {builder.literal("0"),
                            builder.sequence({builder.one_of('1', '9'), builder.repeat(digit, 0, kIntegerDigits - 1)})};
  // 1 to 299 with a minus sign, 1 to 279 with a plus sign, so that no number overflows.
  const auto exponent = [&](char last_tens) {
    const Fragment parts[] = {
        builder.repeat(digit, 1, 2), builder.sequence({builder.literal("1"), builder.repeat(digit, 2, 2)}),
        builder.sequence({builder.literal("2"), builder.one_of('0', static_cast<std::uint8_t>(last_tens)),
                          builder.one_of('0', '9')})};
    return builder.choice(parts);
  };
  const Fragment exponents[] = {builder.sequence({builder.literal("-"), exponent('9')}),
                                builder.sequence({builder.optional(builder.literal("+")), exponent('7')})};
  const Fragment letters[] = {builder.literal("e"), builder.literal("E")};
  return builder.sequence(
      {builder.optional(builder.literal("-")), builder.choice(first),
       builder.optional(builder.sequence({builder.literal("."), builder.repeat(digit, 1, kFractionDigits)})),
       builder.optional(builder.sequence({builder.choice(letters), builder.choice(exponents)}))});
}

// The bound as a limit of whole numbers, from below or above: without a fraction, never strict.
NumberBound whole_bound(NumberBound bound, bool below) {
  const bool exact = bound.fraction.empty();
  const bool away = exact ? bound.strict : bound.negative != below;  // one further from zero
  const bool nearer = exact && bound.strict && !is_zero(bound) && bound.negative == below;
  bound.fraction.clear();
  bound.strict = false;
  if (nearer) {
    bound.integer = minus_one(bound.integer);
  } else if (away) {
    if (is_zero(bound)) bound.negative = !below;
    bound.integer = plus_one(bound.integer);
  }
  if (bound.integer == "0") bound.negative = false;
  return bound;
}

}  // namespace

NumberBound bound_of(const nlohmann::ordered_json& number, bool strict) {
  std::string text;
  if (number.is_number_float()) {
    std::array<char, 512> buffer{};
    const auto [end, error] =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), number.get<double>(), std::chars_format::fixed);
    text.assign(buffer.data(), end);
  } else {
    text = number.dump();
  }
  NumberBound bound{.negative = text.starts_with('-'), .strict = strict};
  if (bound.negative) text.erase(0, 1);
  const std::size_t point = std::min(text.find('.'), text.size());
  bound.integer = text.substr(0, point);
  if (point < text.size()) bound.fraction = text.substr(point + 1);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (is_zero(bound)) bound.negative = false;
  return bound;
}

int compare(const NumberBound& a, const NumberBound& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

bool contains(const NumberRange& range, const nlohmann::ordered_json& number) {
  const NumberBound value = bound_of(number, false);
  const auto outside = [](int order, bool strict) { return order < 0 || (order == 0 && strict); };
  if (range.least && outside(compare(value, *range.least), range.least->strict)) return false;
  return !(range.most && outside(compare(*range.most, value), range.most->strict));
}

Fragment integers(AutomatonBuilder& builder, const NumberRange& range) {
  const NumberBound least =
      range.least ? whole_bound(*range.least, true) : NumberBound{.negative = true, .integer = kLargest};
  const NumberBound most = range.most ? whole_bound(*range.most, false) : NumberBound{.integer = kLargest};
  if (compare(least, most) > 0) return builder.never();
  std::vector<Fragment> parts;
  if (least.negative) {
    const std::string nearest = most.negative ? most.integer : "1";
    parts.push_back(builder.sequence({builder.literal("-"), digits_between(builder, nearest, least.integer)}));
  }
  if (!most.negative) parts.push_back(digits_between(builder, least.negative ? "0" : least.integer, most.integer));
  return builder.choice(parts);
}

Fragment numbers(AutomatonBuilder& builder, const NumberRange& range) {
  if (!range.least && !range.most) return free_number(builder);
  if (range.least && range.most && compare(*range.least, *range.most) > 0) return builder.never();
  const int num_digits = fraction_digits(range);
  std::vector<Fragment> parts;
  if (!range.least || range.least->negative) {
    const bool below_zero = range.most && (range.most->negative || (is_zero(*range.most) && range.most->strict));
    Magnitude nearest = below_zero ? *range.most : Magnitude{.strict = true};  // there is no -0
    if (is_zero(nearest)) nearest.strict = true;
    parts.push_back(builder.sequence({builder.literal("-"), magnitudes(builder, nearest, range.least, num_digits)}));
  }
  if (!range.most || !range.most->negative) {
    const bool above_zero = range.least && !range.least->negative;
    parts.push_back(magnitudes(builder, above_zero ? *range.least : Magnitude{}, range.most, num_digits));
  }
  return builder.choice(parts);
}

}  // namespace heddle::grammar

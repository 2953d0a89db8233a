// Numeric options with strict parsing: the whole text, decimal, in range. (CLI11 itself reads "" as 0 and "010" as 8,
// and truncates large values.)
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace heddle {

template <class T>
struct NumberRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

// "a whole number from 1 to 1024", "a number of at least 0".
template <class T>
std::string describe(NumberRange<T> range) {
  std::string text = std::is_integral_v<T> ? "a whole number" : "a number";
  if (range.max != std::numeric_limits<T>::max()) return fmt::format("{} from {} to {}", text, range.min, range.max);
  if (range.min != std::numeric_limits<T>::lowest() || std::is_unsigned_v<T>)
    return fmt::format("{} of at least {}", text, range.min);
  return text;
}

// With both bounds, for a number that is beyond those of T: "a whole number from 0 to 18446744073709551615".
template <class T>
std::string describe_bounds(NumberRange<T> range) {
  return fmt::format("{} from {} to {}", std::is_integral_v<T> ? "a whole number" : "a number", range.min, range.max);
}

// `target` is a T or an optional<T>; it is unchanged if the option is not given. Anything else than a number in the
// range is a usage error that names the option and the range.
template <class T, class Target>
CLI::Option* add_number_option(CLI::App& command, const std::string& name, Target& target,
                               const std::string& description, NumberRange<T> range = {}) {
  return command
      .add_option_function<std::string>(
          name,
          [&target, name, range](const std::string& text) {
            T value{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || end != text.data() + text.size() || !(value >= range.min && value <= range.max))
              throw CLI::ValidationError(
                  name,
                  fmt::format("is \"{}\", expected {}", text,
                              error == std::errc::result_out_of_range ? describe_bounds(range) : describe(range)));
            target = value;
          },
          description)
      ->type_name("NUMBER");
}

// "1,8": integers in the range, parsed as strictly as above. `target` is unchanged if the option is not given.
inline CLI::Option* add_numbers_option(CLI::App& command, const std::string& name, std::vector<int>& target,
                                       const std::string& description, NumberRange<int> range) {
  return command
      .add_option_function<std::string>(
          name,
          [&target, name, range](const std::string& text) {
            std::vector<int> values;
            const char* next = text.data();
            const char* const last = text.data() + text.size();
            for (bool more = true; more;) {
              int value = 0;
              const auto [end, error] = std::from_chars(next, last, value);
              if (error != std::errc() || value < range.min || value > range.max || (end != last && *end != ','))
                throw CLI::ValidationError(name, fmt::format("is \"{}\", expected numbers separated by commas, each {}",
                                                             text, describe(range)));
              values.push_back(value);
              more = end != last;
              next = more ? end + 1 : end;
            }
            target = std::move(values);
          },
          description)
      ->type_name("NUMBERS");
}

// In order of size, each once.
inline std::vector<int> sorted_once(std::vector<int> numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace heddle

#include "cli/format_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <span>

namespace heddle {
namespace {

// Three digits, and never an exponent: 1.5, 48, 1023.
std::string three_digits(double value) {
  return value < 999.5 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string count_text(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string magnitude_text(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number < 1e3) return fmt::format("{}", count);
  // What would round to 1000 of a unit is shown as 1 of the next unit.
  if (number < 999.5e3) return three_digits(number / 1e3) + " thousand";
  if (number < 999.5e6) return three_digits(number / 1e6) + " million";
  return three_digits(number / 1e9) + " billion";
}

std::string size_text(std::uint64_t size_bytes) {
  const auto bytes = static_cast<double>(size_bytes);
  if (bytes < 0x1p10) return count_text(static_cast<std::int64_t>(size_bytes), "byte");
  if (bytes < 0x1p20) return three_digits(bytes / 0x1p10) + " KiB";
  if (bytes < 0x1p30) return three_digits(bytes / 0x1p20) + " MiB";
  return fmt::format("{:.1f} GiB", bytes / 0x1p30);
}

std::string si_text(double value, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"p", "n", "u", "m", "", "k", "M", "G", "T", "P"};
  constexpr int kNone = 4, kLast = 9;
  int prefix = kNone;
  // 999.96 would be shown as 1000.
  for (; std::abs(value) >= 999.95 && prefix < kLast; ++prefix) value /= 1000;
  for (; value != 0 && std::abs(value) < 0.99995 && prefix > 0; --prefix) value *= 1000;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[prefix], unit);
}

std::string list_text(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? std::string() : names.front();
  const std::span<const std::string> first(names.data(), names.size() - 1);
  return fmt::format("{} and {}", fmt::join(first, ", "), names.back());
}

std::string printable_text(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (byte == '\n') {
      result += "\\n";
    } else if (byte == '\t') {
      result += "\\t";
    } else if (byte == '\r') {
      result += "\\r";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080..U+009F in UTF-8: control characters, too
      result += fmt::format("\\x{:02x}", next);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace heddle

#include "text/grammar/formats.h"

#include <array>
#include <utility>

namespace heddle::grammar {
namespace {

struct Format {
  std::string name;
  std::string pattern;
};

// RFC 3339, with years from 0001; February 29 in leap years only.
std::string date() {
  const std::string year = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})";
  const std::string leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  const std::string day =
      "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
      "02-(?:0[1-9]|1[0-9]|2[0-8]))";
  return "(?:" + year + "-" + day + "|" + leap + "-02-29)";
}

std::string time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return "(?:" + byte + "\\.){3}" + byte;
}

std::string hostname() {
  return "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?){0,6}";
}

const std::array<Format, 8>& formats() {
  static const std::array<Format, 8> all{{
      {"date", date()},
      {"time", time()},
      {"date-time", date() + "T" + time()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"ipv4", ipv4()},
      {"hostname", hostname()},
      {"email", "[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32}){0,3}@" + hostname()},
      {"uri", "[a-z][a-z0-9+.-]{1,15}:(?://" + hostname() + ")?(?:/[A-Za-z0-9._~-]{0,64}){0,16}"},
  }};
  return all;
}

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  for (const Format& known : formats())
    if (known.name == format) return known.pattern;
  return std::nullopt;
}

std::string format_names() {
  std::string names;
  for (const Format& known : formats()) names += (names.empty() ? "" : ", ") + known.name;
  return names;
}

}  // namespace heddle::grammar

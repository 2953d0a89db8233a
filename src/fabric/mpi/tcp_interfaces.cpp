#include "fabric/mpi/tcp_interfaces.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace heddle {
namespace {

// "10.0.0.0/24": false also for what is none.
bool is_in_range(std::string_view range, std::uint32_t address) {
  const std::size_t slash = range.find('/');
  if (slash == std::string_view::npos) return false;
  int bits = -1;
  const char* const last = range.data() + range.size();
  const auto [end, error] = std::from_chars(range.data() + slash + 1, last, bits);
  in_addr network{};
  if (error != std::errc() || end != last || bits < 0 || bits > 32 ||
      ::inet_pton(AF_INET, std::string(range.substr(0, slash)).c_str(), &network) != 1)
    return false;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return (ntohl(network.s_addr) & mask) == (ntohl(address) & mask);
}

}  // namespace

bool is_in_interfaces(std::string_view list, std::string_view name, std::uint32_t address) {
  if (list.empty()) return true;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(','));
    if (one == name || is_in_range(one, address)) return true;
    list.remove_prefix(std::min(one.size() + 1, list.size()));
  }
  return false;
}

}  // namespace heddle

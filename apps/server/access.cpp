#include "server/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "server/api_error.h"

namespace heddle::server {
namespace {

// A host without its port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_localhost(std::string_view name) {
  return std::ranges::equal(name, std::string_view("localhost"),
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (is_localhost(host)) return true;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string text(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24U == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

void check_origin(const HttpRequest& request, const AccessRules& rules) {
  if (rules.only_local_hosts && !request.host.empty() && !is_loopback(host_name(request.host)))
    throw ApiError(403, "the Host is not local: start the server with --host to serve others");
  if (request.origin.empty()) return;
  const std::size_t scheme = request.origin.find("://");
  if (scheme == std::string::npos || request.origin.substr(scheme + 3) != request.host)
    throw ApiError(403, "requests of pages of other origins are rejected");
}

std::uint64_t authorize(const HttpRequest& request, const AccessRules& rules) {
  if (rules.api_keys.empty()) return 0;
  const auto owner = rules.api_keys.owner_of(request.authorization);
  if (!owner) throw ApiError(401, "a valid API key is required: Authorization: Bearer KEY", {}, "invalid_api_key");
  return *owner;
}

void authorize_admin(const HttpRequest& request, const AccessRules& rules) {
  if (rules.admin_keys.empty())
    authorize(request, rules);
  else if (!rules.admin_keys.owner_of(request.authorization))
    throw ApiError(401, "a valid admin key is required: Authorization: Bearer KEY", {}, "invalid_api_key");
}

}  // namespace heddle::server

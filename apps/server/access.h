// Who may ask: keys, pages of other origins, names of the host.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/api_keys.h"
#include "server/http_message.h"

namespace heddle::server {

struct AccessRules {
  ApiKeys api_keys;
  ApiKeys admin_keys;             // for /metrics and /live; without, API keys will do
  bool only_local_hosts = false;  // accept the Host localhost and loopback addresses alone, against DNS rebinding
};

// Whether a host without its port is this machine to itself: localhost, an IPv4 address of 127.0.0.0/8, ::1 (in brackets or
// not). A name that only begins like such an address is not.
bool is_loopback(std::string_view host);

// Throws ApiError 403 for a foreign Host or another page's Origin.
void check_origin(const HttpRequest& request, const AccessRules& rules);

// The owner of the request's key, 0 where there are no keys. Throws ApiError 401 without a valid one.
std::uint64_t authorize(const HttpRequest& request, const AccessRules& rules);

// Throws ApiError 401 without a key that opens /metrics and /live.
void authorize_admin(const HttpRequest& request, const AccessRules& rules);

}  // namespace heddle::server

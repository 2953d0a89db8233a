#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace heddle::server {

std::string error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_implemented_error";
    case 503:
      return "service_unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string error_json(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  const nlohmann::ordered_json object{{"error",
                                       {{"message", error.what()},
                                        {"type", error_type(error.status)},
                                        {"param", text_or_null(error.param)},
                                        {"code", text_or_null(error.code)}}}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_json(error) + "\n"};
  if (error.retry_after) response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after));
  if (!error.allow.empty()) response.headers.emplace_back("Allow", error.allow);
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError as_api_error(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return *api;
  if (dynamic_cast<const InputError*>(&error) != nullptr) return {400, error.what()};
  return {500, error.what()};
}

}  // namespace heddle::server

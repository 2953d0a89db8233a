// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "server/http_message.h"

namespace heddle::server {

// Ends a request with this status.
struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& message, std::string parameter = {}, std::string error_code = {})
      : std::runtime_error(message), status(http_status), param(std::move(parameter)), code(std::move(error_code)) {}

  int status;
  std::string param;               // the field that is wrong; empty: null
  std::string code;                // as "model_not_found"; empty: null
  std::optional<int> retry_after;  // seconds, for 429 and 503
  std::string allow;               // the methods that a route has, for 405
};

// "invalid_request_error", "authentication_error", "rate_limit_error", ...
std::string error_type(int status);

// The object, as a line of JSON without line end.
std::string error_json(const ApiError& error);

HttpResponse error_response(const ApiError& error);

// What any exception means for its request: ApiError itself, InputError 400, everything else 500.
ApiError as_api_error(const std::exception& error);

}  // namespace heddle::server

// What a request's tokens must satisfy, one after the other. The engine asks before it chooses each token.
#pragma once

#include <cstdint>
#include <span>

namespace heddle {

// For one request, and called by the thread that steps the engine. Every function may throw Failure; the request then
// ends with FinishReason::error.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // The tokens that may come next: bit id % 64 of word id / 64. A token beyond the words' end may not. Tokens that end a
  // text are among them exactly when it may end. Valid until the next call.
  virtual std::span<const std::uint64_t> allowed() = 0;

  // The token that was chosen; it was allowed.
  virtual void accept(std::int32_t token) = 0;

  // Whether nothing but the end may come: the request then finishes with `stop`.
  virtual bool complete() = 0;
};

}  // namespace heddle

// How much one request may ask for. Values beyond are errors that name the limit, before anything is computed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::server {

struct RequestLimits {
  std::size_t max_body_bytes = std::size_t{16} << 20;
  int max_json_depth = 48;
  int max_prompts = 1024;   // in one request
  int max_samples = 128;    // n and best_of
  int max_answers = 1024;   // prompts times best_of
  int max_messages = 4096;  // of a conversation
  int max_tools = 128;
  int max_stop_strings = 16;
  std::size_t max_stop_string_bytes = 1024;
  int max_stop_ids = 128;
  int max_logprobs = 20;                                   // alternatives per token
  std::int64_t max_prompt_tokens = std::int64_t{1} << 22;  // of all prompts of a request
};

}  // namespace heddle::server

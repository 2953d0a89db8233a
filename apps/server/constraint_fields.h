// The one place where requests ask for answers of a given form: response_format, guided_* and forced tool calls.
#pragma once

#include "server/generation_request.h"
#include "server/request_fields.h"

namespace heddle::server {

// Reads response_format, structured_outputs, guided_json, guided_regex, guided_choice and, of a chat, tool_choice. `ordered`:
// the same body, whose objects keep the order of their members, as schemas need it. Throws ApiError 400 for what is no such
// field, and for several forms; 501 for guided_grammar and forced calls of tools. The grammar itself is checked later.
void read_constraint_fields(RequestFields& fields, const nlohmann::ordered_json& ordered, GenerationRequest& request);

}  // namespace heddle::server

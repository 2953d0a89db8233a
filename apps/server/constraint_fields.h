// The one place where requests ask for answers of a given form: response_format, guided_* and forced tool calls.
#pragma once

#include "server/generation_request.h"
#include "server/request_fields.h"

namespace heddle::server {

// Reads response_format, structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar and, of a chat,
// tool_choice. Throws ApiError 501 for every form but free text, 400 for what is no such field.
void read_constraint_fields(RequestFields& fields, GenerationRequest& request);

}  // namespace heddle::server

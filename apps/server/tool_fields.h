// The tools of a chat and what it says of them: tool_choice, parallel_tool_calls.
#pragma once

#include "server/generation_request.h"
#include "server/request_fields.h"
#include "server/tool_format.h"

namespace heddle::server {

// Checks the tools of request.conversation, and reads tool_choice and parallel_tool_calls. A choice that forces calls sets the
// request's form: calls of `format`, or of ToolFormat::json where the model has none, with arguments of the functions' schemas.
// Throws ApiError 400 for what is no such field, for a forced call of a function that is not there, and with another form;
// 501 for tools that are no functions and for choices of type allowed_tools. A schema itself is checked later.
void read_tool_fields(RequestFields& fields, ToolFormat format, GenerationRequest& request);

}  // namespace heddle::server

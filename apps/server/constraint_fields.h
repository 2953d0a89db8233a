// Where requests ask for answers of a given form: response_format, structured_outputs and guided_*.
#pragma once

#include "server/generation_request.h"
#include "server/request_fields.h"

namespace heddle::server {

// Reads response_format, structured_outputs, guided_json, guided_regex and guided_choice. `ordered`: the same body, whose
// objects keep the order of their members, as schemas need it. Throws ApiError 400 for what is no such field, and for several
// forms; 501 for guided_grammar. The grammar itself is checked later.
void read_constraint_fields(RequestFields& fields, const nlohmann::ordered_json& ordered, GenerationRequest& request);

// Sets the form that `field` asks for. Throws ApiError 400 if the request has one already.
void set_form(const char* field, grammar::GrammarSource source, GenerationRequest& request);

}  // namespace heddle::server

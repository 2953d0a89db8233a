// Extracts the text of HTML, as markupsafe's striptags does.
#pragma once

#include <string>
#include <string_view>

namespace heddle::jinja {

// Removes tags and comments, collapses white space, replaces character references. Supports the named references of
// Latin-1 and the usual punctuation; throws TemplateError that names any other.
std::string strip_tags(std::string_view text);

}  // namespace heddle::jinja

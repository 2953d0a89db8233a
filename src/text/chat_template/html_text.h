// The text of HTML, as markupsafe's striptags gives it.
#pragma once

#include <string>
#include <string_view>

namespace heddle::jinja {

// Without tags and comments, white space collapsed, character references replaced. Of the named ones those of Latin-1
// and the usual punctuation are known; throws TemplateError that names another.
std::string strip_tags(std::string_view text);

}  // namespace heddle::jinja

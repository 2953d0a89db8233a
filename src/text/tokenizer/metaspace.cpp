#include "text/tokenizer/metaspace.h"

#include "text/tokenizer/utf8.h"

namespace heddle {

std::string one_character(const JsonField& field) {
  std::string text = field.text();
  if (text.empty() || first_char(text).length != text.size()) field.fail_expected("exactly one character");
  return text;
}

Metaspace Metaspace::from_json(const JsonField& field) {
  Metaspace metaspace{one_character(field.at("replacement")), PrependScheme::always, true};
  if (const auto split = field.find("split")) metaspace.split = split->boolean();
  if (const auto scheme = field.find("prepend_scheme")) {
    const std::string name = scheme->text();
    if (name == "first") {
      metaspace.prepend = PrependScheme::first;
    } else if (name == "never") {
      metaspace.prepend = PrependScheme::never;
    } else if (name != "always") {
      scheme->fail_expected("always, first or never");
    }
  }
  const auto prefix_space = field.find("add_prefix_space");
  if (prefix_space && !prefix_space->boolean() && metaspace.prepend != PrependScheme::never)
    prefix_space->fail_expected("true, as prepend_scheme is not \"never\"");
  return metaspace;
}

}  // namespace heddle

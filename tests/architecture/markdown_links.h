// What Markdown files point to.
#pragma once

#include <filesystem>

#include "architecture/rules.h"

namespace heddle::architecture {

// Every relative link of a Markdown file leads to a file or folder, and so does every path in code font that begins with
// a folder of the checkout or of src. A path is looked up beside the file, in the root and in src. Placeholders stand in
// angle brackets (src/<module>/x.h), so they are no paths. Blocks of code are not read.
Faults check_markdown_links(const std::filesystem::path& root);

}  // namespace heddle::architecture

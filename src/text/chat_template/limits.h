// Resource limits of a template. A template is an untrusted program: it may loop, recurse and build strings. Exceeding
// a limit is an InputError that names it.
#pragma once

#include <cstddef>

namespace heddle {

struct TemplateLimits {
  std::size_t max_steps = 50'000'000;  // nodes evaluated, elements visited, blocks of 32 bytes copied
  std::size_t max_output_bytes = std::size_t{256} << 20;  // the rendered text, plus that of every macro being rendered
  std::size_t max_value_bytes = std::size_t{512} << 20;   // at the same time: strings, lists, objects, variables
  int max_depth = 800;                                    // of nested evaluations; a macro call is about five
};

}  // namespace heddle

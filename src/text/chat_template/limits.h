// What a template may use up. A template is a program from a stranger: it may loop, recurse and build strings, and each
// of these ends here with an InputError that names the limit.
#pragma once

#include <cstddef>

namespace heddle {

struct TemplateLimits {
  std::size_t max_steps = 50'000'000;                     // nodes evaluated, elements visited, each 32 bytes copied
  std::size_t max_output_bytes = std::size_t{256} << 20;  // the text rendered, and every macro's that is being rendered
  std::size_t max_value_bytes = std::size_t{512} << 20;   // alive at one time: strings, lists, objects, variables
  int max_depth = 800;  // of evaluations within evaluations; a macro's call is about five
};

}  // namespace heddle

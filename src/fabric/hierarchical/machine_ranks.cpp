#include "fabric/hierarchical/machine_ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/printable.h"
#include "machine/system_file.h"

namespace heddle {

int machine_ranks(int here) {
  const char* const text = std::getenv("HEDDLE_MACHINE_RANKS");
  if (text == nullptr) return here;
  const auto number = whole_number(text);
  if (!number || *number < 1)
    throw_error<InputError>("HEDDLE_MACHINE_RANKS is \"{}\", expected a number of ranks from 1 on",
                            printable(text, 40));
  return static_cast<int>(std::min(*number, static_cast<std::int64_t>(here)));
}

}  // namespace heddle

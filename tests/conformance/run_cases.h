// A rank's course through the cases: the same in threads, in processes and on GPUs.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "conformance/cases.h"

namespace heddle::conformance {

struct Course {
  Options options;
  std::string only;  // the case of that name; "": all
  int soak_iterations = 0;
  int replays = 0;  // of the soak of replays
};

// Runs every case (and the soak, if any) and tells `report` of each one's end: its name, and why it was skipped or "".
// Throws, with the case's name in front, at the first that fails; a fabric is of no use after that.
void run_cases(Fabric& fabric, Stream& stream, const Course& course,
               FunctionRef<void(std::string_view name, std::string_view skipped)> report);

}  // namespace heddle::conformance

#include "conformance/run_cases.h"

#include <algorithm>

namespace heddle::conformance {

void run_cases(Fabric& fabric, Stream& stream, const Course& course,
               FunctionRef<void(std::string_view name, std::string_view skipped)> report) {
  const auto named = [&](const Case& one) { return one.name == course.only; };
  if (!course.only.empty() && std::none_of(all_cases().begin(), all_cases().end(), named))
    throw_error<InputError>("there is no case \"{}\"", course.only);
  Context context(fabric, stream, course.options);
  const auto run = [&](std::string_view name, auto&& one) {
    try {
      one();
    } catch (const std::exception& error) {
      throw CheckFailed(fmt::format("{}, rank {} of {}: {}", name, fabric.rank(), fabric.size(), error.what()));
    }
    fabric.meet();  // what the case had of the device is given back while nobody waits
    report(name, "");
  };
  for (const Case& one : all_cases()) {
    if (!course.only.empty() && !named(one)) continue;
    if (const std::string_view reason = reason_to_skip(one, fabric); !reason.empty()) {
      report(one.name, reason);
    } else {
      run(one.name, [&] { one.run(context); });
    }
  }
  if (course.soak_iterations > 0) run("soak", [&] { soak(context, course.soak_iterations); });
  if (course.replays > 0) run("replay soak", [&] { soak_of_replays(context, course.replays); });
}

}  // namespace heddle::conformance

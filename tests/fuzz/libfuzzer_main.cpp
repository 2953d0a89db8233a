// Runs libFuzzer on the target that --target=NAME chooses (libFuzzer ignores options with two hyphens, and passes them
// on to the processes that it starts).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "fuzz/target.h"

namespace {

const heddle::fuzz::Target* chosen = nullptr;

// CPU time of this thread: a busy machine must not look like a slow parser.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  for (int i = 1; i < *argc; ++i)
    if (const std::string_view argument = (*argv)[i]; argument.starts_with(kOption))
      chosen = heddle::fuzz::find_target(argument.substr(kOption.size()));
  if (chosen != nullptr) return 0;
  std::fputs("Usage: heddle_fuzz --target=NAME [libFuzzer's options] [folder or file]... The targets:", stderr);
  for (const auto& target : heddle::fuzz::targets())
    std::fprintf(stderr, " %.*s", static_cast<int>(target.name.size()), target.name.data());
  std::fputs("\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const double start = cpu_seconds();
  chosen->run({reinterpret_cast<const char*>(data), size});  // an exception ends the program, with a stack trace
  const double seconds = cpu_seconds() - start;
  if (seconds > chosen->max_seconds) {
    std::fprintf(stderr, "slow: %.1f s of CPU time for %zu bytes; at most %.1f s are right\n", seconds, size,
                 chosen->max_seconds);
    std::abort();
  }
  return 0;
}

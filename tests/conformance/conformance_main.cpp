// heddle_conformance --fabric shm|mpi|nvlink|nvlink-ipc [--threads N] [--case NAME] [--large] [--rounds N] [--soak N]
//   [--seed N] [--deadline SECONDS]
// Runs the cases on a fabric: under mpirun, or (--threads, not mpi) with ranks as threads. A line a case; exit code 1
// when one fails. Needs no GoogleTest, so it runs on machines that have none.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "conformance/run_cases.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"

namespace heddle::conformance {
namespace {

struct Arguments {
  std::string fabric = "shm";
  int threads = 0;  // 0: ranks are processes
  double deadline_seconds = 10;
  Course course;
};

template <class T>
T number(std::string_view option, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw_error<InputError>("{}: \"{}\" is not a number", option, text);
  return value;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--large") {
      arguments.course.options.largest_bytes = std::size_t{256} << 20;
      continue;
    }
    if (i + 1 == argc) throw_error<InputError>("{}: unknown, or its value is missing", option);
    const std::string_view value = argv[++i];
    if (option == "--fabric") {
      arguments.fabric = value;
    } else if (option == "--threads") {
      arguments.threads = number<int>(option, value);
    } else if (option == "--case") {
      arguments.course.only = value;
    } else if (option == "--rounds") {
      arguments.course.options.rounds = number<int>(option, value);
    } else if (option == "--soak") {
      arguments.course.soak_iterations = number<int>(option, value);
    } else if (option == "--seed") {
      arguments.course.options.seed = number<std::uint64_t>(option, value);
    } else if (option == "--deadline") {
      arguments.deadline_seconds = number<double>(option, value);
    } else {
      throw_error<InputError>("{}: unknown option", option);
    }
  }
  return arguments;
}

// Rank 0 tells.
void run_rank(Fabric& fabric, Stream& stream, const Course& course) {
  auto start = std::chrono::steady_clock::now();
  run_cases(fabric, stream, course, [&](std::string_view name, std::string_view skipped) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start).count();
    start = now;
    if (fabric.rank() != 0) return;
    if (skipped.empty()) {
      fmt::print("{:<24} ok {:9.3f} s\n", name, seconds);
    } else {
      fmt::print("{:<24} skipped: {}\n", name, skipped);
    }
    std::fflush(stdout);
  });
}

int run(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const FabricOptions options{
      .heap_bytes = heap_bytes_for(arguments.course.options),
      .deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(arguments.deadline_seconds * 1e9))};
  if (arguments.threads == 0) read_launch();  // or says that nobody has started it as a rank
  run_ranks(arguments.fabric, std::max(1, arguments.threads), options,
            [&](Fabric& fabric, Stream& stream) { run_rank(fabric, stream, arguments.course); });
  return 0;
}

}  // namespace
}  // namespace heddle::conformance

int main(int argc, char** argv) {
  try {
    return heddle::conformance::run(argc, argv);
  } catch (const heddle::InputError& error) {
    fmt::print(stderr, "heddle_conformance: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle_conformance: {}\n", error.what());
    return 1;
  }
}

// heddle_collective_cases --fabric shm|nvlink|nvlink-ipc [--threads N] [--largest COUNT] [--soak CALLS] [--replays RUNS]
//   [--seed N] [--deadline SECONDS]
// Runs the collectives' course on a fabric: as a rank of `heddle launch`, or (--threads) with ranks as threads. A line
// a part; exit code 1 when something is wrong. Needs no GoogleTest, so it runs on machines that have none.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "collectives/cases.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"

namespace heddle {
namespace {

template <class T>
T number(std::string_view option, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw_error<InputError>("{}: \"{}\" is not a number", option, text);
  return value;
}

int run(int argc, char** argv) {
  std::string_view fabric_name = "shm";
  int threads = 0;
  double deadline_seconds = 10;
  CollectiveCourse course;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) throw_error<InputError>("{}: unknown, or its value is missing", option);
    const std::string_view value = argv[i + 1];
    if (option == "--fabric") {
      fabric_name = value;
    } else if (option == "--threads") {
      threads = number<int>(option, value);
    } else if (option == "--largest") {
      course.largest = number<std::size_t>(option, value);
    } else if (option == "--soak") {
      course.soak_calls = number<int>(option, value);
    } else if (option == "--replays") {
      course.replays = number<int>(option, value);
    } else if (option == "--seed") {
      course.seed = number<std::uint32_t>(option, value);
    } else if (option == "--deadline") {
      deadline_seconds = number<double>(option, value);
    } else {
      throw_error<InputError>("{}: unknown option", option);
    }
  }
  const int ranks = threads == 0 ? read_launch().world_size : threads;
  const DeviceKind device = fabric_name.starts_with("nvlink") ? DeviceKind::cuda : DeviceKind::cpu;
  const FabricOptions options{.heap_bytes = heap_bytes_of(course, ranks, device),
                              .deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(deadline_seconds * 1e9))};
  auto start = std::chrono::steady_clock::now();
  run_ranks(fabric_name, threads, options, [&](Fabric& fabric, Stream& stream) {
    run_course(fabric, stream, course, [&](const std::string& what) {
      if (fabric.rank() != 0) return;
      const auto now = std::chrono::steady_clock::now();
      fmt::print("{:<44} ok {:9.3f} s\n", what, std::chrono::duration<double>(now - start).count());
      std::fflush(stdout);
      start = now;
    });
  });
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  try {
    return heddle::run(argc, argv);
  } catch (const heddle::InputError& error) {
    fmt::print(stderr, "heddle_collective_cases: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle_collective_cases: {}\n", error.what());
    return 1;
  }
}

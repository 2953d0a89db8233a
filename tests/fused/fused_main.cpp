// heddle_fused_cases [--fabric shm|mpi|nvlink|nvlink-ipc] [--threads N] [--calls N] [--late NANOSECONDS] [--seed N]
//                    [--only PART] [--deadline SECONDS]
// The course of the fused operators: as a rank of `heddle launch`, or (--threads) with ranks as threads. A line a part;
// exit code 1 when something is wrong. Needs no GoogleTest.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"
#include "fused/cases.h"
#include "fused/gpu_cases.h"

namespace heddle {
namespace {

std::int64_t number(std::string_view option, std::string_view text) {
  std::int64_t value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw_error<InputError>("{}: \"{}\" is not a number", option, text);
  return value;
}

void run(int argc, char** argv) {
  std::string_view fabric_name = "shm";
  int threads = 0;
  std::int64_t deadline_seconds = 60;
  FusedCourse course;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) throw_error<InputError>("{}: unknown, or its value is missing", option);
    const std::string_view value = argv[i + 1];
    if (option == "--fabric") {
      fabric_name = value;
    } else if (option == "--threads") {
      threads = static_cast<int>(number(option, value));
    } else if (option == "--calls") {
      course.calls = static_cast<int>(number(option, value));
    } else if (option == "--late") {
      course.late_nanoseconds = static_cast<std::uint64_t>(number(option, value));
    } else if (option == "--only") {
      course.only = value;
    } else if (option == "--seed") {
      course.seed = static_cast<std::uint32_t>(number(option, value));
    } else if (option == "--deadline") {
      deadline_seconds = number(option, value);
    } else {
      throw_error<InputError>("{}: unknown option", option);
    }
  }
  const int ranks = threads == 0 ? read_launch().world_size : threads;
  const bool on_gpus = fabric_name.starts_with("nvlink");
  const FabricOptions options{
      .heap_bytes = on_gpus ? heap_bytes_of_fused_gpu_course(ranks) : heap_bytes_of_fused_course(ranks),
      .deadline = std::chrono::seconds(deadline_seconds)};
  run_ranks(fabric_name, threads, options, [&](Fabric& fabric, Stream& stream) {
    const auto done = [&](const char* what) {
      if (fabric.rank() == 0) fmt::print("{:<44} ok\n", what);
      std::fflush(stdout);
    };
    if (on_gpus)
      run_fused_gpu_course(fabric, stream, course, done);
    else
      run_fused_course(fabric, stream, course, done);
  });
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  try {
    heddle::run(argc, argv);
    return 0;
  } catch (const heddle::InputError& error) {
    fmt::print(stderr, "heddle_fused_cases: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle_fused_cases: {}\n", error.what());
    return 1;
  }
}

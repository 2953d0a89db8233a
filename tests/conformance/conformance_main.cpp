// heddle_conformance runs the cases on a fabric: under mpirun, or (--threads, not mpi) with ranks as threads. Needs no
// GoogleTest, so it runs on machines that have none.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "conformance/run_cases.h"
#include "fabric/launch.h"
#include "fabric/run_ranks.h"

namespace heddle::conformance {
namespace {

struct Arguments {
  std::string fabric = "shm";
  int threads = 0;  // 0: ranks are processes
  double deadline_seconds = 10;
  bool large = false;
  Course course;
};

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("--fabric", arguments.fabric, "shm, mpi, hierarchical, nvlink, nvlink-ipc or hierarchical-nvlink")
      ->capture_default_str();
  app.add_option("--threads", arguments.threads, "ranks as threads (not mpi); without it ranks are processes")
      ->check(CLI::Range(1, kMaxPeers));
  app.add_option("--case", arguments.course.only, "one case alone");
  app.add_flag("--large", arguments.large, "sizes up to 256 MB, not to 1 MB");
  app.add_option("--rounds", arguments.course.options.rounds, "of the cases that repeat")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--soak", arguments.course.soak_iterations, "iterations of the soak, after the cases")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  app.add_option("--replays", arguments.course.replays, "of a captured graph with random delays, after the cases")
      ->check(CLI::Range(0, 100'000'000))
      ->capture_default_str();
  app.add_option("--seed", arguments.course.options.seed, "of what is random")->capture_default_str();
  app.add_option("--deadline", arguments.deadline_seconds, "seconds that a wait may last")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
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

int run(Arguments arguments) {
  if (arguments.large) arguments.course.options.largest_bytes = std::size_t{256} << 20;
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
  CLI::App app("Runs the conformance cases on a fabric: a line a case; exit status 1 when one fails.");
  heddle::conformance::Arguments arguments;
  heddle::conformance::add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return heddle::conformance::run(std::move(arguments));
  } catch (const heddle::InputError& error) {
    fmt::print(stderr, "heddle_conformance: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle_conformance: {}\n", error.what());
    return 1;
  }
}

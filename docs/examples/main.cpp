// The command line of the numbered examples.
#include <CLI/CLI.hpp>
#include <string>

#include "example.h"
#include "fabric/run_ranks.h"

int main(int argc, char** argv) {
  CLI::App app;
  int ranks = 4;
  std::string fabric = "shm";
  double deadline_seconds = 10;
  app.add_option("--ranks", ranks, "how many ranks")->check(CLI::Range(1, heddle::kMaxPeers))->capture_default_str();
  app.add_option("--fabric", fabric, "shm: threads of the CPU; nvlink: GPUs")->capture_default_str();
  app.add_option("--deadline", deadline_seconds, "seconds that a wait may last")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    heddle::FabricOptions options;
    options.join_deadline = options.deadline;  // as it is by default: processes take their time to start
    options.deadline = std::chrono::nanoseconds(static_cast<std::int64_t>(deadline_seconds * 1e9));
    heddle::run_ranks(fabric, ranks, options, [](auto& own, auto& stream) { rank_main(own, stream); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}

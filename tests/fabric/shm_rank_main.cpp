// A rank for shm_processes_test: shm_rank MODE HEAP_BYTES DEADLINE_MS, the rest as mpirun would set it. Says "ready"
// when all have come and met; ends with the error's text on stderr and 1, or with 0.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "base/thread_pool.h"
#include "fabric/registry.h"

namespace heddle {
namespace {

void run(std::string_view mode, const FabricOptions& options) {
  ThreadPool pool(1);
  for (int i = 0; i < (mode == "twice" ? 2 : 1); ++i) {
    const std::unique_ptr<Fabric> fabric = open_fabric("shm", options);
    Stream stream(pool);
    auto* flags = reinterpret_cast<std::uint64_t*>(fabric->allocate(64).data);
    fabric->barrier(stream);
    fabric->synchronize(stream);
    std::puts("ready");
    std::fflush(stdout);
    const int next = (fabric->rank() + 1) % fabric->size();
    const int previous = (fabric->rank() + fabric->size() - 1) % fabric->size();
    if (mode == "throw" && fabric->rank() == 1) throw std::runtime_error("an error of rank 1");
    for (std::uint64_t round = 1; mode == "barriers" || mode == "waits" || mode == "throw"; ++round) {
      if (mode == "waits") {
        fabric->signal(stream, next, flags, round);
        fabric->wait(stream, previous, flags, round, "round");
      } else {
        fabric->barrier(stream);
      }
      if (round % 64 == 0) fabric->synchronize(stream);
    }
    fabric->barrier(stream);
    fabric->synchronize(stream);
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  alarm(60);  // whatever happens, it ends
  try {
    heddle::run(argv[1], {.heap_bytes = std::strtoull(argv[2], nullptr, 10),
                          .deadline = std::chrono::milliseconds(std::strtoll(argv[3], nullptr, 10))});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s", error.what());
    return 1;
  }
}

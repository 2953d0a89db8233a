// A rank for mpi_failure.sh: mpi_rank MODE DEADLINE_MS [FABRIC]. The ranks pass a token round and round; rank 1 then is killed
// or stops (kill, stop), returns early (leave), never opens its fabric (missing), wants another heap (unequal), ends with
// an error (throw), or is killed while the others get from it and from each other (begun) or put (begun_put). Each other rank prints its own
// number and the error, and ends with 1. `again`: rank 1 is killed, and each other rank then opens a second fabric; the
// error that it prints is that of the second.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "fabric/launch.h"
#include "fabric/registry.h"

namespace heddle {
namespace {

// Rank 1's bytes never come. What was begun behind them must not be written to when this has thrown.
void get_from_all(Fabric& fabric, Stream& stream, const std::byte* there, std::size_t bytes) {
  std::vector<std::byte> here(static_cast<std::size_t>(fabric.size()) * bytes);
  const auto place = [&](int rank) { return here.data() + static_cast<std::size_t>(rank) * bytes; };
  for (int peer = 0; peer < fabric.size(); ++peer) fabric.begin_get(stream, peer, place(peer), there, bytes);
  for (int peer = 0; peer < fabric.size(); ++peer) fabric.get(stream, peer, place(peer), there, bytes);
  fabric.synchronize(stream);
}

// Rank 1 takes nothing. What was begun behind it must not be read when this has thrown.
void put_to_all(Fabric& fabric, Stream& stream, std::byte* there, std::size_t bytes) {
  const std::vector<std::byte> here(bytes);
  for (int peer = 0; peer < fabric.size(); ++peer) fabric.begin_put(stream, peer, there, here.data(), bytes);
  for (int peer = 0; peer < fabric.size(); ++peer) fabric.put(stream, peer, there, here.data(), bytes);
  fabric.fence(stream);
  fabric.synchronize(stream);
}

void run(std::string_view mode, std::string_view name, FabricOptions options) {
  const bool odd_one = read_launch().rank == 1;
  if (mode == "missing" && odd_one) ::pause();
  if (mode == "unequal" && odd_one) options.heap_bytes += 4096;
  ThreadPool pool(1);
  const std::unique_ptr<Fabric> fabric = open_fabric(name, options);
  Stream stream(pool);
  auto* flag = reinterpret_cast<std::uint64_t*>(fabric->allocate(64).data);
  constexpr std::size_t kBytes = std::size_t{200} << 10;
  std::byte* const bytes = fabric->allocate(kBytes).data;
  const int next = (fabric->rank() + 1) % fabric->size();
  const int previous = (fabric->rank() + fabric->size() - 1) % fabric->size();
  for (std::uint64_t round = 1;; ++round) {
    if (round == 20 && odd_one) {
      if (mode == "kill" || mode == "again" || mode.starts_with("begun")) ::raise(SIGKILL);
      if (mode == "stop") ::raise(SIGSTOP);
      if (mode == "leave") return;
      if (mode == "throw") throw std::runtime_error("an error of its own");
    }
    if (round == 20 && mode == "begun") get_from_all(*fabric, stream, bytes, kBytes);
    if (round == 20 && mode == "begun_put") put_to_all(*fabric, stream, bytes, kBytes);
    fabric->signal(stream, next, flag, round);
    fabric->wait(stream, previous, flag, round, "round");
    fabric->synchronize(stream);
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  ::alarm(60);  // whatever happens, it ends
  const char* const fabric = argc == 4 ? argv[3] : "mpi";
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const heddle::FabricOptions options{.heap_bytes = 1 << 20,
                                      .deadline = std::chrono::milliseconds(std::atoll(argv[2]))};
  try {
    try {
      heddle::run(argv[1], fabric, options);
    } catch (const std::exception&) {
      if (std::string_view(argv[1]) != "again") throw;
      heddle::run(argv[1], fabric, options);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "from %s: %s\n", rank != nullptr ? rank : "?", error.what());
    return 1;
  }
}

// A rank of three for conformance/mpi_progress_*: mpi_progress MODE. Rank 2 is stopped (put, fence, get: what rank 0 does
// to it on one stream) or computes without a call of its fabric (compute). Rank 2 goes on only when rank 0 has exchanged
// messages with rank 1 on another stream, or has ended its transfers with the computing rank: if one had to wait for the
// other, nobody would go on, and the deadline would end the run.
//
// slow: ranks 1 and 2 get from rank 0 over a link (slow_link.sh) that takes longer for either than the deadline, so while
// one gets all of the link the other must hear that its turn will come.
// crossed: ranks 0 and 1 get from each other over such a link, the second of them a second later, while it answers the first. Its
// request must not wait until that answer has left.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "device/atomics.h"
#include "fabric/process_state.h"
#include "fabric/registry.h"

namespace heddle {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;  // more than any socket takes in
constexpr std::uint64_t kRounds = 100;

struct Heap {
  std::uint64_t process;  // rank 0's: of rank 2
  std::uint64_t ping, pong;
  std::uint64_t go_on;
  std::byte bytes[kBytes];
};

std::vector<std::byte> bytes_of(int seed) {
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 4096 + static_cast<std::size_t>(seed));
  return bytes;
}

void expect_equal(const std::byte* got, const std::vector<std::byte>& wanted, std::size_t count,
                  std::string_view what) {
  for (std::size_t i = 0; i < count; ++i)
    if (got[i] != wanted[i]) throw_error<Failure>("{}: byte {} differs", what, i);
}

std::size_t bytes_put(std::string_view mode) {
  return mode == "get" ? 0 : mode == "fence" ? 64 : kBytes;
}

void wait_until_stopped(int process) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (state_of_process(process) != ProcessState::stopped) {
    if (deadline.passed()) throw_error<Failure>("process {} does not stop", process);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void talk(Fabric& fabric, Stream& stream, Heap& heap) {
  const int other = 1 - fabric.rank();
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (fabric.rank() == 1) fabric.wait(stream, other, &heap.ping, round, "ping");
    fabric.signal(stream, other, fabric.rank() == 0 ? &heap.ping : &heap.pong, round);
    if (fabric.rank() == 0) fabric.wait(stream, other, &heap.pong, round, "pong");
  }
  fabric.synchronize(stream);
}

void run_rank_0(Fabric& fabric, Stream& stream, Heap& heap, std::string_view mode) {
  const auto process = static_cast<int>(atomic_load(&heap.process));
  if (mode != "compute") wait_until_stopped(process);
  ThreadPool pool(1);
  Stream held_up(pool);
  const std::vector<std::byte> given = bytes_of(0);
  std::vector<std::byte> got(kBytes);
  if (bytes_put(mode) != 0) fabric.put(held_up, 2, heap.bytes, given.data(), bytes_put(mode));
  if (mode == "fence" || mode == "compute") fabric.fence(held_up);
  if (mode == "get") fabric.get(held_up, 2, got.data(), heap.bytes, kBytes);
  if (mode == "compute") fabric.synchronize(held_up);
  talk(fabric, stream, heap);
  if (mode != "compute") ::kill(process, SIGCONT);
  fabric.synchronize(held_up);
  if (mode == "get") expect_equal(got.data(), bytes_of(2), kBytes, "get");
  fabric.signal(held_up, 2, &heap.go_on, 1);
  fabric.synchronize(held_up);
}

void run_rank_2(Fabric& fabric, Stream& stream, Heap& heap, std::string_view mode) {
  if (mode == "compute") {
    while (atomic_load(&heap.go_on) == 0) {
    }
  } else {
    ::raise(SIGSTOP);
    fabric.wait(stream, 0, &heap.go_on, 1, "go on");
    fabric.synchronize(stream);
  }
  expect_equal(heap.bytes, bytes_of(0), bytes_put(mode), "put");
}

void get_crosswise(Fabric& fabric, Stream& stream, Heap& heap) {
  if (fabric.rank() == 2) return;
  if (fabric.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  std::vector<std::byte> got(kBytes);
  const int other = 1 - fabric.rank();
  fabric.get(stream, other, got.data(), heap.bytes, kBytes);
  fabric.synchronize(stream);
  expect_equal(got.data(), bytes_of(other), kBytes, "get");
}

// Nobody waits by the fabric but the gets.
void get_slowly(Fabric& fabric, Stream& stream, Heap& heap) {
  if (fabric.rank() == 0) {
    while (atomic_load(&heap.go_on) != 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return;
  }
  std::vector<std::byte> got(kBytes);
  fabric.get(stream, 0, got.data(), heap.bytes, kBytes);
  fabric.synchronize(stream);
  expect_equal(got.data(), bytes_of(0), kBytes, "get");
  fabric.signal_add(stream, 0, &heap.go_on, 1);
  fabric.synchronize(stream);
}

void run(std::string_view mode) {
  FabricOptions options{.heap_bytes = sizeof(Heap) + 4096};
  const bool is_slow = mode == "slow" || mode == "crossed";
  if (is_slow) options.deadline = std::chrono::seconds(2);
  options.join_deadline = std::chrono::seconds(10);
  const std::unique_ptr<Fabric> fabric = open_fabric("mpi", options);
  if (fabric->size() != 3) throw_error<InputError>("mpi_progress is for 3 ranks");
  ThreadPool pool(1);
  Stream stream(pool);
  Heap& heap = *reinterpret_cast<Heap*>(fabric->allocate(sizeof(Heap)).data);
  const std::vector<std::byte> own = bytes_of(fabric->rank());
  if (is_slow || fabric->rank() == 2) fabric->put(stream, fabric->rank(), heap.bytes, own.data(), kBytes);
  if (!is_slow && fabric->rank() == 2) fabric->signal(stream, 0, &heap.process, static_cast<std::uint64_t>(::getpid()));
  // The first barrier has all ranks connected; the second leaves nothing behind that rank 2 would have to send.
  for (int i = 0; i < 2; ++i) fabric->barrier(stream);
  fabric->synchronize(stream);
  if (mode == "slow") return get_slowly(*fabric, stream, heap);
  if (mode == "crossed") return get_crosswise(*fabric, stream, heap);
  if (fabric->rank() == 0) run_rank_0(*fabric, stream, heap, mode);
  if (fabric->rank() == 1) talk(*fabric, stream, heap);
  if (fabric->rank() == 2) run_rank_2(*fabric, stream, heap, mode);
  fabric->barrier(stream);
  fabric->synchronize(stream);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ::alarm(60);  // whatever happens, it ends
  try {
    heddle::run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_progress %s: %s\n", argv[1], error.what());
    return 1;
  }
}

// Programs that a stream runs again and again: as a captured graph on a GPU, enqueued anew on the CPU. For files that
// nvcc compiles in builds with CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/graph.h"
#include "device/atomics.h"
#include "device/enqueue_body.h"
#include "device/spin.h"
#include "fabric/fabric.h"

namespace heddle::conformance {

HEDDLE_HOST_DEVICE std::uint64_t mixed(std::uint64_t word) {  // splitmix64
  word += 0x9e37'79b9'7f4a'7c15;
  word = (word ^ (word >> 30)) * 0xbf58'476d'1ce4'e5b9;
  word = (word ^ (word >> 27)) * 0x94d0'49bb'1331'11eb;
  return word ^ (word >> 31);
}

// Word i of what `rank` sends in run `run` of a program, the first being 1.
HEDDLE_HOST_DEVICE std::uint64_t message_word(int rank, std::uint64_t run, std::size_t i) {
  return mixed(mixed(static_cast<std::uint64_t>(rank) << 48 ^ run) + i);
}

// A body counts its own runs in `*runs`, of own memory, zero at first: nothing of that is in a graph.

// Lets some time pass, another in each run: up to `most_nanoseconds`.
struct Delay {
  std::uint64_t* runs;
  std::uint64_t seed;
  std::uint64_t most_nanoseconds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() != 0) return;
    const std::uint64_t run = ++*runs;
    const std::uint64_t long_enough = mixed(seed ^ mixed(run)) % most_nanoseconds;
    for (const std::uint64_t start = now_nanoseconds(); now_nanoseconds() - start < long_enough;) {
    }
  }
};

// Writes this run's message.
struct Write {
  std::uint64_t* runs;
  int rank;
  std::uint64_t* words;
  std::size_t count;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = *runs + 1;
    for (auto i = static_cast<std::size_t>(group.lane()); i < count; i += static_cast<std::size_t>(group.lanes()))
      words[i] = message_word(rank, run, i);
    group.sync();  // every lane has read the count
    if (group.lane() == 0) *runs = run;
  }
};

// What became of the messages of one source.
struct Verdict {
  std::uint64_t runs;
  std::uint64_t wrong;   // words that were not this run's
  std::uint64_t first;   // the run of the first of them
  std::uint64_t digest;  // of all words of all runs: other bits or another order, another digest
};

// Looks whether the words are what `rank` has written in this run.
struct Read {
  Verdict* verdict;
  int rank;
  const std::uint64_t* words;
  std::size_t count;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = verdict->runs + 1;
    std::uint64_t wrong = 0, digest = 0;
    for (auto i = static_cast<std::size_t>(group.lane()); i < count; i += static_cast<std::size_t>(group.lanes())) {
      if (words[i] != message_word(rank, run, i)) ++wrong;
      digest += mixed(words[i] ^ mixed(run * count + i));
    }
    if (wrong > 0) {
      atomic_compare_exchange<Order::relaxed>(&verdict->first, 0, run);
      atomic_add<Order::relaxed>(&verdict->wrong, wrong);
    }
    atomic_add<Order::relaxed>(&verdict->digest, digest);
    group.sync();
    if (group.lane() == 0) verdict->runs = run;
  }
};

// Runs `enqueue` on the stream `times` times: recorded once and replayed where the stream can. Collective: nobody
// captures, which takes memory, while a peer's kernel waits. Looks at the stream now and then, so that a failure ends
// it, and so that no rank's launches fill up a queue behind a kernel that waits for a rank that cannot launch.
inline void run_program(Fabric& fabric, Stream& stream, int times, bool as_graph, FunctionRef<void()> enqueue) {
  constexpr int kAtOnce = 20;
  fabric.synchronize(stream);
  fabric.meet();
  Graph graph;
  if (as_graph && stream.device().kind == DeviceKind::cuda) graph = Graph(stream, enqueue);
  fabric.synchronize(stream);
  fabric.meet();
  for (int i = 1; i <= times; ++i) {
    if (graph)
      graph.launch(stream);
    else
      enqueue();
    if (i % kAtOnce == 0) fabric.synchronize(stream);
  }
  fabric.synchronize(stream);
  graph = Graph();
  fabric.meet();  // the graph has gone, everywhere, before anybody waits again
}

}  // namespace heddle::conformance

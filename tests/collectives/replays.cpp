// Sums in a program with random delays between them, run again and again: as a captured graph on a GPU, enqueued anew on
// the CPU.
#include <cstring>

#include "base/copy.h"
#include "base/error.h"
#include "collectives/all_reduce.h"
#include "collectives/cases.h"
#include "conformance/replay.h"

namespace heddle {
namespace {

using conformance::Delay;
using conformance::message_word;
using conformance::mixed;
using conformance::Verdict;

constexpr BodyShape kReplayBlock{.blocks = 1, .threads = 256};
constexpr std::size_t kReplayCount = 3000, kReplayBytes = kReplayCount * sizeof(float);
constexpr std::uint64_t kLongestDelay = 20'000;

// Whole numbers so small that their sums are exact, and differ from run to run.
HEDDLE_HOST_DEVICE float replay_input(int rank, std::uint64_t run, std::size_t i) {
  return static_cast<float>(static_cast<int>(message_word(rank, run, i) % 4096) - 2048);
}

struct WriteInput {
  std::uint64_t* runs;
  int rank;
  float* input;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = *runs + 1;
    for (auto i = static_cast<std::size_t>(group.lane()); i < kReplayCount;
         i += static_cast<std::size_t>(group.lanes()))
      input[i] = replay_input(rank, run, i);
    group.sync();
    if (group.lane() == 0) *runs = run;
  }
};

struct ReadSum {
  Verdict* verdict;
  int ranks;
  const float* sum;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = verdict->runs + 1;
    std::uint64_t wrong = 0, digest = 0;
    for (auto i = static_cast<std::size_t>(group.lane()); i < kReplayCount;
         i += static_cast<std::size_t>(group.lanes())) {
      float expected = 0;
      for (int rank = 0; rank < ranks; ++rank) expected += replay_input(rank, run, i);
      if (sum[i] != expected) ++wrong;
      std::uint32_t bits;
      memcpy(&bits, sum + i, sizeof(bits));
      digest += mixed(bits ^ mixed(run * kReplayCount + i));
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

}  // namespace

std::size_t replay_heap_bytes() {
  return 2 * (kReplayBytes + 256);
}

std::string run_replays(Communicator& communicator, Stream& stream, int replays) {
  constexpr Choice kChoices[] = {{Algorithm::low_latency, 3, 256},
                                 {Algorithm::pipelined, 5},
                                 {Algorithm::direct, 4, 128},
                                 {Algorithm::two_phase, 6, 128}};
  constexpr std::size_t kSums = std::size(kChoices);
  Fabric& fabric = communicator.fabric();
  auto* const input = reinterpret_cast<float*>(fabric.allocate(kReplayBytes).data);  // symmetric, as pipelined wants it
  auto* const sum = reinterpret_cast<float*>(fabric.allocate(kReplayBytes).data);
  constexpr std::size_t kOwnWords = 16;
  Buffer own(kOwnWords * sizeof(std::uint64_t) + kSums * sizeof(Verdict), fabric.device());
  auto* const words = reinterpret_cast<std::uint64_t*>(own.data());  // counts of runs: of inputs, of each delay
  auto* const verdicts = reinterpret_cast<Verdict*>(words + kOwnWords);
  const auto enqueue = [&] {
    for (std::size_t i = 0; i < kSums; ++i) {
      const auto delay = [&](std::size_t which) {
        const auto seed = static_cast<std::uint64_t>(communicator.rank()) * 100 + which;
        enqueue_body(stream, kReplayBlock, Delay{words + 1 + which, seed, kLongestDelay});
      };
      delay(2 * i);
      enqueue_body(stream, kReplayBlock, WriteInput{words + 9 + i, communicator.rank(), input});
      communicator.force(kChoices[i]);
      all_reduce(communicator, {input, sum, kReplayCount, DType::float32, Memory::symmetric}, stream);
      delay(2 * i + 1);
      enqueue_body(stream, kReplayBlock, ReadSum{verdicts + i, communicator.size(), sum});
    }
  };
  std::string wrong;
  std::uint64_t digests[2][kSums] = {};
  for (const bool as_graph : {false, true}) {
    enqueue_clear(stream, own.data(), own.size_bytes());
    conformance::run_program(fabric, stream, replays, as_graph, enqueue);
    Verdict got[kSums];
    enqueue_copy(stream, got, verdicts, sizeof(got));
    fabric.synchronize(stream);
    for (std::size_t i = 0; i < kSums; ++i) {
      digests[as_graph ? 1 : 0][i] = got[i].digest;
      if ((got[i].wrong != 0 || got[i].runs != static_cast<std::uint64_t>(replays)) && wrong.empty())
        wrong = fmt::format("{} {}: {} sums of {} runs (expected {}) are wrong, the first in run {}",
                            name_of(kChoices[i].algorithm), as_graph ? "in a graph" : "call by call", got[i].wrong,
                            got[i].runs, replays, got[i].first);
    }
  }
  for (std::size_t i = 0; i < kSums; ++i)
    if (digests[0][i] != digests[1][i] && wrong.empty())
      wrong = fmt::format("{}: {} replays give other bits than calls", name_of(kChoices[i].algorithm), replays);
  communicator.force({});
  own = Buffer();  // freed before anybody waits again
  fabric.meet();
  return wrong;
}

}  // namespace heddle

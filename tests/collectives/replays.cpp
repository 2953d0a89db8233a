// Every collective by every algorithm in one program that runs again and again, in three ways: call by call; captured
// once and replayed; and replayed with random delays inside the collectives (conformance/jitter.h). The CPU has no
// graphs and enqueues anew. Compiled by nvcc in builds with CUDA.
#include <cstring>
#include <memory>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "collectives/all_gather_programs.cuh"
#include "collectives/all_reduce_programs.cuh"
#include "collectives/all_to_all_programs.cuh"
#include "collectives/barrier.cuh"
#include "collectives/barrier.h"
#include "collectives/broadcast_programs.cuh"
#include "collectives/cases.h"
#include "collectives/reduce_scatter_programs.cuh"
#include "collectives/run_on_cpu.h"
#include "conformance/jitter.h"
#include "conformance/replay.h"

#ifdef __CUDACC__
#include "collectives/launch_sm90.cuh"
#endif

namespace heddle {
namespace {

using conformance::Delay;
using conformance::message_word;
using conformance::mixed;
using conformance::Verdict;

constexpr std::uint64_t kLongestDelay = 20'000;
constexpr std::size_t kSumCount = 3000;       // float32, of all_reduce
constexpr std::size_t kPieceCount = 700;      // float32, of reduce_scatter
constexpr std::size_t kPieceWords = 150;      // of all_gather and all_to_all
constexpr std::size_t kBroadcastWords = 300;  // at most the input of a team of two
constexpr std::size_t kFloatsOfWord = 2;      // movers take words as pairs of float32

struct Operation {
  Collective collective;
  Choice choice;
  int root = 0;
};

// The barrier is the last: what is checked behind it was stored right before it.
constexpr Operation kOperations[] = {{Collective::all_reduce, {Algorithm::low_latency, 3, 256}},
                                     {Collective::all_reduce, {Algorithm::pipelined, 5}},
                                     {Collective::all_reduce, {Algorithm::direct, 4, 128}},
                                     {Collective::all_reduce, {Algorithm::two_phase, 6, 128}},
                                     {Collective::reduce_scatter, {Algorithm::low_latency, 2, 128}},
                                     {Collective::reduce_scatter, {Algorithm::direct, 3, 128}},
                                     {Collective::all_gather, {Algorithm::low_latency, 5, 64}},
                                     {Collective::all_gather, {Algorithm::direct, 2, 128}},
                                     {Collective::all_to_all, {Algorithm::low_latency, 1, 256}},
                                     {Collective::all_to_all, {Algorithm::direct, 4, 64}},
                                     {Collective::broadcast, {Algorithm::low_latency, 4, 64}, 1},
                                     {Collective::broadcast, {Algorithm::direct, 3, 128}, 0},
                                     {Collective::barrier, {Algorithm::direct, 1, 128}}};
constexpr int kNumOperations = static_cast<int>(std::size(kOperations));

// Whole numbers so small that their sums are exact, and differ from run to run.
HEDDLE_HOST_DEVICE float replay_float(int rank, std::uint64_t run, std::size_t i) {
  return static_cast<float>(static_cast<int>(message_word(rank, run, i) % 4096) - 2048);
}

// Word i of the input of all_gather, all_to_all and broadcast. One in eight has a meaning for packets (packet.cuh).
HEDDLE_HOST_DEVICE std::uint64_t replay_word(int rank, std::uint64_t run, std::size_t i) {
  const std::uint64_t word = message_word(kMaxPeers + rank, run, i);
  return word % 16 == 0 ? kEmpty : word % 16 == 1 ? kEscape : word;
}

// Where the program's data lie on each rank; all but `runs` and `verdicts` in the symmetric heap.
struct ReplayData {
  float* floats;         // [max(kSumCount, ranks * kPieceCount)]
  std::uint64_t* words;  // [ranks, kPieceWords]
  std::byte* outputs;    // [kNumOperations, output_bytes]
  std::size_t output_bytes;
  std::uint64_t* runs;  // runs so far, this one included
  Verdict* verdicts;    // [kNumOperations]

  HEDDLE_HOST_DEVICE std::byte* output(int operation) const {
    return outputs + static_cast<std::size_t>(operation) * output_bytes;
  }
  // What the ranks stored at each other before the barrier of a run. A rank that is one run ahead writes other marks.
  HEDDLE_HOST_DEVICE std::uint64_t* marks(int ranks, std::uint64_t run) const {
    return reinterpret_cast<std::uint64_t*>(output(kNumOperations - 1)) + run % 2 * static_cast<std::size_t>(ranks);
  }

  static std::size_t num_floats(std::size_t ranks) { return std::max(kSumCount, ranks * kPieceCount); }
  static std::size_t bytes_of_output(std::size_t ranks) {
    return round_up(std::max(kSumCount * sizeof(float), ranks * kPieceWords * sizeof(std::uint64_t)), std::size_t{256});
  }
};

struct WriteInputs {
  ReplayData data;
  int rank, ranks;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = *data.runs + 1;
    const auto n = static_cast<std::size_t>(ranks), lanes = static_cast<std::size_t>(group.lanes());
    const std::size_t floats = n * kPieceCount > kSumCount ? n * kPieceCount : kSumCount;
    for (auto i = static_cast<std::size_t>(group.lane()); i < floats; i += lanes)
      data.floats[i] = replay_float(rank, run, i);
    for (auto i = static_cast<std::size_t>(group.lane()); i < n * kPieceWords; i += lanes)
      data.words[i] = replay_word(rank, run, i);
    group.sync();  // every lane has read the count
    if (group.lane() == 0) *data.runs = run;
  }
};

struct StoreMarks {
  ReplayData data;
  Peers peers;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const std::uint64_t run = *data.runs;
    for (int peer = group.lane(); peer < peers.size; peer += group.lanes())
      store(peers, peer, data.marks(peers.size, run) + peers.rank, message_word(peers.rank, run, 0));
  }
};

// Compares the outputs of this run with what they must be. A block for each operation, or some.
struct CheckOutputs {
  ReplayData data;
  int rank, ranks;
  Collective collectives[kNumOperations];
  int roots[kNumOperations];

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    for (int operation = group.block(); operation < kNumOperations; operation += group.blocks())
      check(group, operation, *data.runs);
  }

  template <Group G>
  HEDDLE_HOST_DEVICE void check(const G& group, int operation, std::uint64_t run) const {
    const Collective collective = collectives[operation];
    const bool sums = collective == Collective::all_reduce || collective == Collective::reduce_scatter;
    const bool barrier = collective == Collective::barrier;
    const std::size_t count = count_of(collective);
    const std::uint64_t* const words =
        barrier ? data.marks(ranks, run) : reinterpret_cast<const std::uint64_t*>(data.output(operation));
    std::uint64_t wrong = 0, digest = 0;
    for (auto i = static_cast<std::size_t>(group.lane()); i < count; i += static_cast<std::size_t>(group.lanes())) {
      const std::uint64_t got = sums ? reinterpret_cast<const std::uint32_t*>(words)[i] : words[i];
      if (got != expected(collective, roots[operation], run, i)) ++wrong;
      digest += mixed(got ^ mixed(run * count + i));
    }
    Verdict& verdict = data.verdicts[operation];
    if (wrong > 0) {
      atomic_compare_exchange<Order::relaxed>(&verdict.first, 0, run);
      atomic_add<Order::relaxed>(&verdict.wrong, wrong);
    }
    atomic_add<Order::relaxed>(&verdict.digest, digest);
    if (group.lane() == 0) ++verdict.runs;
  }

  HEDDLE_HOST_DEVICE std::size_t count_of(Collective collective) const {
    switch (collective) {
      case Collective::all_reduce:
        return kSumCount;
      case Collective::reduce_scatter:
        return kPieceCount;
      case Collective::broadcast:
        return kBroadcastWords;
      case Collective::barrier:
        return static_cast<std::size_t>(ranks);
      default:
        return static_cast<std::size_t>(ranks) * kPieceWords;
    }
  }

  // Element i of the output: a word, or the bits of a float32.
  HEDDLE_HOST_DEVICE std::uint64_t expected(Collective collective, int root, std::uint64_t run, std::size_t i) const {
    const auto own = static_cast<std::size_t>(rank);
    const int sender = static_cast<int>(i / kPieceWords);
    switch (collective) {
      case Collective::all_reduce:
        return bits_of_sum(run, i);
      case Collective::reduce_scatter:
        return bits_of_sum(run, own * kPieceCount + i);
      case Collective::all_gather:
        return replay_word(sender, run, i % kPieceWords);
      case Collective::all_to_all:
        return replay_word(sender, run, own * kPieceWords + i % kPieceWords);
      case Collective::broadcast:
        return replay_word(root, run, i);
      default:
        return message_word(static_cast<int>(i), run, 0);
    }
  }
  HEDDLE_HOST_DEVICE std::uint32_t bits_of_sum(std::uint64_t run, std::size_t i) const {
    float sum = 0;
    for (int p = 0; p < ranks; ++p) sum += replay_float(p, run, i);
    std::uint32_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    return bits;
  }
};

// A collective's program with delays inside.
template <class Program>
struct LateProgram {
  Program program;
  Peers peers;
  CollectiveMemory memory;
  const std::uint64_t* runs;
  std::uint64_t seed;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    conformance::run_late(group, peers, *runs, seed, [&](const auto& late_group, const auto& late_peers) {
      program(late_group, late_peers, memory);
    });
  }
};

#ifdef __CUDACC__
template <class Program>
__global__ void __launch_bounds__(kThreadsOf<Program>, 1)
    run_late_program(const __grid_constant__ LateProgram<Program> program) {
  program(DeviceBlock{});
}
#endif

// Sums of other dtypes than float32 are not replayed, so their kernels need not be compiled.
template <class Program>
inline constexpr bool kIsReplayed = true;
template <template <class, int> class Program, class T, int kAtOnce>
inline constexpr bool kIsReplayed<Program<T, kAtOnce>> = std::is_same_v<T, float>;

class Replays {
 public:
  enum class Way : std::uint8_t { calls, graph, late_graph };

  Replays(Communicator& communicator, Stream& stream) : communicator_(communicator), stream_(stream) {
    Fabric& fabric = communicator.fabric();
    const auto n = static_cast<std::size_t>(communicator.size());
    data_.floats = reinterpret_cast<float*>(fabric.allocate(ReplayData::num_floats(n) * sizeof(float)).data);
    data_.words = reinterpret_cast<std::uint64_t*>(fabric.allocate(n * kPieceWords * sizeof(std::uint64_t)).data);
    data_.output_bytes = ReplayData::bytes_of_output(n);
    data_.outputs = fabric.allocate(kNumOperations * data_.output_bytes).data;
    own_ = Buffer(kVerdicts + kNumOperations * sizeof(Verdict), fabric.device());
    data_.runs = reinterpret_cast<std::uint64_t*>(own_.data());
    data_.verdicts = reinterpret_cast<Verdict*>(own_.data() + kVerdicts);
  }

  // What is wrong with so many runs, or nothing; their digests.
  std::string run(Way way, int times, std::uint64_t (&digests)[kNumOperations]) {
    Fabric& fabric = communicator_.fabric();
    enqueue_clear(stream_, own_.data(), own_.size_bytes());
    conformance::run_program(fabric, stream_, times, way != Way::calls, [&] { enqueue(way); });
    communicator_.force({});
    Verdict got[kNumOperations];
    enqueue_copy(stream_, got, data_.verdicts, sizeof(got));
    fabric.synchronize(stream_);
    std::string wrong;
    for (int i = 0; i < kNumOperations; ++i) {
      digests[i] = got[i].digest;
      if ((got[i].wrong != 0 || got[i].runs != static_cast<std::uint64_t>(times)) && wrong.empty())
        wrong = fmt::format("{} by {}, {}: {} elements of {} runs (expected {}) are wrong, the first in run {}",
                            name_of(kOperations[i].collective), name_of(kOperations[i].choice.algorithm), text_of(way),
                            got[i].wrong, got[i].runs, times, got[i].first);
    }
    return wrong;
  }

  static const char* text_of(Way way) {
    return way == Way::calls ? "call by call" : way == Way::graph ? "in a graph" : "with delays inside";
  }

  // Collective. Before anybody waits again: what this rank has allocated is freed.
  void end() {
    own_ = Buffer();
    communicator_.fabric().meet();
  }

 private:
  static constexpr std::size_t kVerdicts = 64;  // where they begin; counts of runs and delays lie before them

  void enqueue(Way way) {
    constexpr BodyShape kBlock{.blocks = 1, .threads = 256};
    const int rank = communicator_.rank(), ranks = communicator_.size();
    const auto delay = [&](int which) {
      const auto seed = static_cast<std::uint64_t>(100 * rank + which);
      enqueue_body(stream_, kBlock, Delay{data_.runs + 1 + which, seed, kLongestDelay});
    };
    CheckOutputs check{data_, rank, ranks, {}, {}};
    delay(0);
    enqueue_body(stream_, kBlock, WriteInputs{data_, rank, ranks});
    for (int i = 0; i < kNumOperations; ++i) {
      check.collectives[i] = kOperations[i].collective;
      check.roots[i] = kOperations[i].root;
      if (kOperations[i].collective == Collective::barrier) {
        delay(1);
        enqueue_body(stream_, kBlock, StoreMarks{data_, communicator_.peers()});
      }
      communicator_.force(kOperations[i].choice);
      way == Way::late_graph ? late_call(i) : call(i);
    }
    enqueue_body(stream_, {.blocks = kNumOperations, .threads = 256}, check);
  }

  AllReduceParams all_reduce_of(int i) const {
    return {data_.floats, data_.output(i), kSumCount, DType::float32, Memory::symmetric};
  }
  ReduceScatterParams reduce_scatter_of(int i) const {
    return {data_.floats, data_.output(i), kPieceCount, DType::float32, Memory::symmetric};
  }
  AllGatherParams all_gather_of(int i) const {
    return {data_.words, data_.output(i), kFloatsOfWord * kPieceWords, DType::float32, Memory::symmetric};
  }
  AllToAllParams all_to_all_of(int i) const {
    return {data_.words, data_.output(i), kFloatsOfWord * kPieceWords, DType::float32, Memory::symmetric};
  }
  BroadcastParams broadcast_of(int i) const {
    return {data_.words,    data_.output(i),     kFloatsOfWord * kBroadcastWords,
            DType::float32, kOperations[i].root, Memory::symmetric};
  }

  void call(int i) {
    switch (kOperations[i].collective) {
      case Collective::all_reduce:
        return all_reduce(communicator_, all_reduce_of(i), stream_);
      case Collective::reduce_scatter:
        return reduce_scatter(communicator_, reduce_scatter_of(i), stream_);
      case Collective::all_gather:
        return all_gather(communicator_, all_gather_of(i), stream_);
      case Collective::all_to_all:
        return all_to_all(communicator_, all_to_all_of(i), stream_);
      case Collective::broadcast:
        return broadcast(communicator_, broadcast_of(i), stream_);
      case Collective::barrier:
        return barrier(communicator_, stream_);
    }
  }

  // The program that the call would run, with delays inside.
  void late_call(int i) {
    const Collective collective = kOperations[i].collective;
    const Choice choice = communicator_.choose(collective, data_.output_bytes, Memory::symmetric);
    if (choice.algorithm != kOperations[i].choice.algorithm)
      throw_error<Failure>("{} by {} is not possible here", name_of(collective),
                           name_of(kOperations[i].choice.algorithm));
    const auto late = [&](const auto& program) { enqueue_late(program, choice, static_cast<std::uint64_t>(i)); };
    switch (collective) {
      case Collective::all_reduce:
        return with_all_reduce(communicator_, all_reduce_of(i), choice, late);
      case Collective::reduce_scatter:
        return with_reduce_scatter(communicator_, reduce_scatter_of(i), choice, late);
      case Collective::all_gather:
        return with_all_gather(communicator_, all_gather_of(i), choice, late);
      case Collective::all_to_all:
        return with_all_to_all(communicator_, all_to_all_of(i), choice, late);
      case Collective::broadcast:
        return with_broadcast(broadcast_of(i), choice, late);
      case Collective::barrier:
        return late(FlagBarrier{});
    }
  }

  template <class Program>
  void enqueue_late(const Program& program, [[maybe_unused]] const Choice& choice, std::uint64_t operation) {
    if constexpr (kIsReplayed<Program>) {
      const std::uint64_t seed = operation << 32 | static_cast<std::uint64_t>(communicator_.rank()) << 16;
      const LateProgram<Program> late{program, communicator_.peers(), communicator_.collective_memory(), data_.runs,
                                      seed};
      if (stream_.device().kind == DeviceKind::cpu) {
        stream_.enqueue([shared = std::make_shared<const LateProgram<Program>>(late)](ThreadPool&) {
          (*shared)(HostThread{});
          end_as_a_kernel();
        });
        return;
      }
#ifdef __CUDACC__
      const int threads = kThreadsOf<Program> == 512 ? choice.threads : kThreadsOf<Program>;
      launch_sm90("late collective", run_late_program<Program>,
                  {.grid = dim3(static_cast<unsigned>(choice.blocks)),
                   .block = dim3(static_cast<unsigned>(threads)),
                   .programmatic = false},
                  stream_, late);
#endif
    }
  }

  Communicator& communicator_;
  Stream& stream_;
  ReplayData data_{};
  Buffer own_;
};

}  // namespace

std::size_t replay_heap_bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  constexpr std::size_t kAlignment = 256;
  return ReplayData::num_floats(n) * sizeof(float) + n * kPieceWords * sizeof(std::uint64_t) +
         kNumOperations * ReplayData::bytes_of_output(n) + 3 * kAlignment;
}

std::string run_replays(Communicator& communicator, Stream& stream, int times) {
  Replays replays(communicator, stream);
  std::uint64_t of_calls[kNumOperations], of_replays[kNumOperations];
  std::string wrong = replays.run(Replays::Way::calls, times, of_calls);
  for (const Replays::Way way : {Replays::Way::graph, Replays::Way::late_graph}) {
    const std::string more = replays.run(way, times, of_replays);
    if (wrong.empty()) wrong = more;
    for (int i = 0; i < kNumOperations; ++i)
      if (of_replays[i] != of_calls[i] && wrong.empty())
        wrong = fmt::format("{} by {}: {} runs {} give other bits than calls", name_of(kOperations[i].collective),
                            name_of(kOperations[i].choice.algorithm), times, Replays::text_of(way));
  }
  replays.end();
  return wrong;
}

}  // namespace heddle

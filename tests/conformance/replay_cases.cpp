// Programs whose waits count on the device: right however often they run, as a captured graph too.
#include <algorithm>
#include <cstring>
#include <vector>

#include "conformance/cases.h"
#include "conformance/jitter.h"
#include "conformance/replay.h"
#include "device/one_sided.h"

namespace heddle::conformance {
namespace {

constexpr BodyShape kReplayBlock{.blocks = 1, .threads = 128};
constexpr std::size_t kMessageWords = 300;  // of a message
constexpr std::uint64_t kLongestDelay = 20'000;

// Two messages to the next rank in each run, one told by a semaphore and one by a barrier, with delays in between. The
// answers and the second barrier say that they were read.
class Exchange {
 public:
  // Collective.
  explicit Exchange(Context& context)
      : context_(context),
        inboxes_(reinterpret_cast<std::uint64_t*>(context.left())),
        own_(reinterpret_cast<std::uint64_t*>(context.own())),
        full_(reinterpret_cast<Semaphore*>(context.fabric().allocate(2 * sizeof(Semaphore)).data)),
        empty_(full_ + 1) {}

  // Puts the counts of runs back to 0: what the semaphores and the fabric count goes on.
  void begin() { context_.write(context_.own(), Bytes((kMessageWords + 64) * sizeof(std::uint64_t))); }

  void enqueue() {
    Fabric& fabric = context_.fabric();
    Stream& stream = context_.stream();
    const std::size_t bytes = kMessageWords * sizeof(std::uint64_t);
    int delays = 0;
    const auto delay = [&] {
      const auto seed = static_cast<std::uint64_t>(100 * context_.rank() + delays);
      enqueue_body(stream, kReplayBlock, Delay{own_ + 8 + delays++, seed, kLongestDelay});
    };
    const auto read = [&](int which) {
      enqueue_body(stream, kReplayBlock,
                   Read{verdict(which), context_.previous(), inboxes_ + which * kMessageWords, kMessageWords});
    };
    delay();
    enqueue_body(stream, kReplayBlock, Write{own_, context_.rank(), message(), kMessageWords});
    fabric.put(stream, context_.next(), inboxes_, message(), bytes);
    fabric.signal_next(stream, context_.next(), full_);
    delay();
    fabric.wait_next(stream, context_.previous(), full_, "message");
    read(0);
    delay();
    fabric.signal_next(stream, context_.previous(), empty_);
    fabric.put(stream, context_.next(), inboxes_ + kMessageWords, message(), bytes);
    fabric.barrier(stream);
    read(1);
    delay();
    fabric.barrier(stream);
    fabric.wait_next(stream, context_.next(), empty_, "it was read");
  }

  // Throws unless all messages of so many runs were right; their digest.
  std::uint64_t check(int runs) {
    std::uint64_t digest = 0;
    for (const int which : {0, 1}) {
      Verdict got{};
      const Bytes bytes = context_.read(verdict(which), sizeof(got));
      std::memcpy(&got, bytes.data(), sizeof(got));
      expect(got.wrong == 0, "message {}: {} words of {} runs are not their run's, the first in run {}", which,
             got.wrong, runs, got.first);
      expect(got.runs == static_cast<std::uint64_t>(runs), "message {}: {} runs instead of {}", which, got.runs, runs);
      digest = mixed(digest + got.digest);
    }
    return digest;
  }

 private:
  std::uint64_t* message() const { return own_ + 64; }
  Verdict* verdict(int which) const { return reinterpret_cast<Verdict*>(own_ + 16) + which; }

  Context& context_;
  std::uint64_t* inboxes_;  // two, symmetric
  std::uint64_t* own_;      // counts of runs, verdicts, the message
  Semaphore* full_;
  Semaphore* empty_;
};

// Both ends in one kernel or CPU thread; the answers by semaphores, too.
struct SemaphorePingPong {
  Peers peers;
  std::uint64_t* inbox;    // of kMessageWords
  std::uint64_t* message;  // own, of kMessageWords
  Semaphore* full;
  Semaphore* empty;
  Verdict* verdict;
  std::uint64_t* runs;
  int rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    exchange(group, peers);
  }

  template <Group G, PeerAddressing P>
  HEDDLE_HOST_DEVICE void exchange(const G& group, const P& by) const {
    const int next = (by.rank + 1) % by.size, previous = (by.rank + by.size - 1) % by.size;
    for (int round = 0; round < rounds; ++round) {
      Write{runs, by.rank, message, kMessageWords}(group);
      group.sync();
      put(group, by, next, inbox, message, kMessageWords * sizeof(std::uint64_t));
      signal_next(group, by, next, full);
      if (!wait_next(group, by, previous, full, "message")) return;
      Read{verdict, previous, inbox, kMessageWords}(group);
      signal_next(group, by, previous, empty);
      if (!wait_next(group, by, next, empty, "it was read")) return;
    }
  }
};

// The same with delays inside.
struct LatePingPong {
  SemaphorePingPong ping_pong;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const auto seed = static_cast<std::uint64_t>(ping_pong.peers.rank) << 32;
    run_late(group, ping_pong.peers, *ping_pong.runs, seed,
             [&](const auto& late_group, const auto& late_peers) { ping_pong.exchange(late_group, late_peers); });
  }
};

// A ping-pong of one round a run, call by call and then, with delays inside, replayed.
void soak_of_late_ping_pongs(Context& context, int replays) {
  auto* full = reinterpret_cast<Semaphore*>(context.fabric().allocate(2 * sizeof(Semaphore)).data);
  auto* own = reinterpret_cast<std::uint64_t*>(context.own());
  auto* verdict = reinterpret_cast<Verdict*>(own + 16);
  const SemaphorePingPong ping_pong{context.fabric().peers(),
                                    reinterpret_cast<std::uint64_t*>(context.left()),
                                    own + 64,
                                    full,
                                    full + 1,
                                    verdict,
                                    own,
                                    1};
  std::uint64_t digests[2] = {};
  for (const bool late : {false, true}) {
    context.write(context.own(), Bytes((64 + kMessageWords) * sizeof(std::uint64_t)));
    context.meet();
    run_program(context.fabric(), context.stream(), replays, late, [&] {
      if (late)
        enqueue_body(context.stream(), kReplayBlock, LatePingPong{ping_pong});
      else
        enqueue_body(context.stream(), kReplayBlock, ping_pong);
    });
    Verdict got{};
    const Bytes bytes = context.read(verdict, sizeof(got));
    std::memcpy(&got, bytes.data(), sizeof(got));
    expect(got.wrong == 0 && got.runs == static_cast<std::uint64_t>(replays),
           "semaphores{}: {} words of {} runs (expected {}) are not their run's, the first in run {}",
           late ? " with delays inside" : "", got.wrong, got.runs, replays, got.first);
    digests[late ? 1 : 0] = got.digest;
  }
  expect(digests[0] == digests[1], "semaphores: {} replays with delays inside give other bits", replays);
  context.meet();
}

// Between machines a host takes part, which sees no replay of a graph.
bool can_be_captured(const Fabric& fabric) {
  return fabric.device().kind == DeviceKind::cuda && !fabric.has(Capability::several_machines);
}

}  // namespace

void semaphores_count_messages(Context& context) {
  // Three messages ahead of the waits: each wait takes one, and the fourth waits for the fourth.
  auto* semaphore = reinterpret_cast<Semaphore*>(context.fabric().allocate(sizeof(Semaphore)).data);
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (std::uint64_t taken = 0; taken < 12; taken += 4) {
    for (int i = 0; i < 3; ++i) fabric.signal_next(stream, context.next(), semaphore);
    context.meet();
    for (int i = 0; i < 3; ++i) fabric.wait_next(stream, context.previous(), semaphore, "one of three");
    const std::uint64_t arrived = context.read_word(&semaphore->arrived), read = context.read_word(&semaphore->taken);
    expect(arrived == taken + 3 && read == taken + 3, "{} have arrived, {} were taken, expected {}", arrived, read,
           taken + 3);
    context.meet();
    // The message of the fourth is a word that is there only when it is signalled.
    context.write(context.own(), std::as_bytes(std::span(&taken, 1)));
    fabric.put(stream, context.next(), context.left(), context.own(), sizeof(taken));
    fabric.signal_next(stream, context.next(), semaphore);
    fabric.wait_next(stream, context.previous(), semaphore, "the fourth");
    expect(context.read_word(context.left()) == taken, "the fourth wait did not wait for the fourth message");
    context.meet();
  }
}

void programs_run_again_and_again(Context& context) {
  Exchange exchange(context);
  const int runs = std::clamp(context.rounds() / 4, 3, 250);
  exchange.begin();
  context.meet();
  run_program(context.fabric(), context.stream(), runs, can_be_captured(context.fabric()), [&] { exchange.enqueue(); });
  static_cast<void>(exchange.check(runs));
  context.meet();
}

void device_semaphores(Context& context) {
  auto* full = reinterpret_cast<Semaphore*>(context.fabric().allocate(2 * sizeof(Semaphore)).data);
  auto* own = reinterpret_cast<std::uint64_t*>(context.own());
  const int rounds = context.rounds();
  context.write(context.own(), Bytes((64 + kMessageWords) * sizeof(std::uint64_t)));
  context.meet();
  auto* verdict = reinterpret_cast<Verdict*>(own + 16);
  // Twice, as a kernel of a graph would run: the second goes on where the first has ended.
  for (int again = 0; again < 2; ++again)
    enqueue_body(context.stream(), kReplayBlock,
                 SemaphorePingPong{context.fabric().peers(), reinterpret_cast<std::uint64_t*>(context.left()), own + 64,
                                   full, full + 1, verdict, own, rounds});
  Verdict got{};
  const Bytes bytes = context.read(verdict, sizeof(got));
  std::memcpy(&got, bytes.data(), sizeof(got));
  expect(got.wrong == 0, "{} words were not their round's, the first in round {}", got.wrong, got.first);
  expect(got.runs == 2 * static_cast<std::uint64_t>(rounds), "{} rounds instead of {}", got.runs, 2 * rounds);
  context.meet();
}

void captured_values_are_rejected(Context& context) {
  if (context.fabric().device().kind != DeviceKind::cuda) return;  // nothing captures a CPU stream
  const auto message_of = [&](auto&& enqueue) -> std::string {
    try {
      const Graph graph(context.stream(), enqueue);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  Fabric& fabric = context.fabric();
  fabric.meet();
  const std::string wait =
      message_of([&] { fabric.wait(context.stream(), context.rank(), context.flag(0), 1, "baked in"); });
  const std::string signal = message_of([&] { fabric.signal(context.stream(), context.rank(), context.flag(0), 1); });
  const bool counted_may = can_be_captured(fabric);
  expect(wait.find(counted_may ? "wait_next" : "captured") != std::string::npos,
         "a captured wait was not rejected: \"{}\"", wait);
  expect(signal.find(counted_may ? "signal_next" : "captured") != std::string::npos,
         "a captured signal was not rejected: \"{}\"", signal);
  fabric.meet();
  context.meet();  // the stream is as good as before
}

void soak_of_replays(Context& context, int replays) {
  Exchange exchange(context);
  std::uint64_t digests[2] = {};
  for (const bool as_graph : {false, true}) {
    exchange.begin();
    context.meet();
    run_program(context.fabric(), context.stream(), replays, as_graph && can_be_captured(context.fabric()),
                [&] { exchange.enqueue(); });
    digests[as_graph ? 1 : 0] = exchange.check(replays);
  }
  expect(digests[0] == digests[1], "{} replays: other bits than enqueued one by one", replays);
  context.meet();
  if (context.fabric().has(Capability::peer_addresses)) soak_of_late_ping_pongs(context, replays);
}

}  // namespace heddle::conformance

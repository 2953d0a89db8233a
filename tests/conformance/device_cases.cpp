// The operations of one_sided.h and atomics.h as bodies that run on the stream's device: a CPU thread, or, if nvcc
// compiles this file, a block of a GPU.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "conformance/cases.h"
#include "device/enqueue_body.h"
#include "device/one_sided.h"

namespace heddle::conformance {
namespace {

constexpr BodyShape kOneBlock{.blocks = 1, .threads = 128};

// A body says in `*ok` (of own memory) whether its waits ended well. One flag a pair of ranks that wait for each other.

struct Copies {
  Peers peers;
  std::byte* source;       // symmetric, as all below
  std::byte* destination;  // three pieces: put by the previous rank, got from the next, copied by the one before both
  std::size_t size_bytes;
  std::size_t stride_bytes;
  std::uint64_t* words;  // load and store

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const int next = (peers.rank + 1) % peers.size;
    const int after_next = (peers.rank + 2) % peers.size;
    put(group, peers, next, destination, source, size_bytes);
    get(group, peers, next, destination + stride_bytes, source, size_bytes);
    copy(group, peers, next, after_next, destination + 2 * stride_bytes, source, size_bytes);
    if (group.lane() == 0) {
      const std::uint64_t theirs = load(peers, next, words);
      store(peers, next, words + 1, theirs + 1);
    }
    group.sync();
  }
};

// Round after round: a payload, a flag, an answer. The receiver adds up what it reads.
struct PingPong {
  Peers peers;
  std::uint64_t* payload;  // two words, 64 bytes apart
  std::uint64_t* flag;
  std::uint64_t* answer;
  std::uint64_t* counter;  // raised by signal_add from everybody
  std::uint64_t* wrong;    // own: how many payloads were not the flag's
  std::uint64_t* ok;       // own
  int rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const int next = (peers.rank + 1) % peers.size;
    const int previous = (peers.rank + peers.size - 1) % peers.size;
    for (int round = 1; round <= rounds; ++round) {
      const auto epoch = static_cast<std::uint64_t>(round);
      if (group.lane() == 0) {
        store(peers, next, payload, epoch);
        store(peers, next, payload + 8, epoch * 3);
      }
      signal(group, peers, next, flag, epoch);
      if (!wait_until(group, peers, previous, flag, epoch, "ping")) return;
      if (group.lane() == 0 && (payload[0] != epoch || payload[8] != epoch * 3)) ++*wrong;
      signal(group, peers, previous, answer, epoch);
      if (!wait_until(group, peers, next, answer, epoch, "pong")) return;
    }
    for (int peer = 0; peer < peers.size; ++peer) signal_add(group, peers, peer, counter, 5);
    if (!wait_until(group, peers, next, counter, static_cast<std::uint64_t>(5 * peers.size), "all")) return;
    if (group.lane() == 0) *ok = 1;
  }
};

// A word whose eight bytes are alike.
HEDDLE_HOST_DEVICE std::uint64_t eight_of(std::uint64_t byte) {
  return byte * 0x0101'0101'0101'0101;
}

// Polls a word until it is `last`. All values of it that were put have eight bytes that are alike.
struct WatchWord {
  Peers peers;
  int from;
  const std::uint64_t* word;  // symmetric
  std::uint64_t last;
  std::uint64_t* torn;  // own: how many values were not alike

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() != 0) return;
    const auto ends = [this](std::uint64_t value) {
      if (value != eight_of(value & 0xff)) ++*torn;
      return value == last;
    };
    static_cast<void>(spin_until(peers.waits, why(peers, from, "word"), word, last, ends));
  }
};

// Store buffering (Dekker): two ranks each store to a place and load the other's. Sequential consistency forbids that
// both loads miss.
struct StoreBuffering {
  Peers peers;
  std::uint64_t* places;  // a word a round, at the rank whose word it is not
  std::uint64_t* seen;    // own, a word a round
  std::uint64_t* flag;
  std::uint64_t* ok;
  int rounds;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    const int partner = peers.rank ^ 1;
    if (partner < peers.size) {
      for (int round = 0; round < rounds; ++round) {
        const auto epoch = static_cast<std::uint64_t>(round) + 1;
        signal(group, peers, partner, flag, epoch);
        if (!wait_until(group, peers, partner, flag, epoch, "both ready")) return;
        if (group.lane() == 0) {
          // Mine lies at the partner, the partner's lies here.
          atomic_store<Order::seq_cst>(peers.at(partner, places + round), 1);
          seen[round] = atomic_load<Order::seq_cst>(places + round);
        }
        group.sync();
      }
    }
    if (group.lane() == 0) *ok = 1;
  }
};

// Every rank works on the words of rank 0.
template <class T>
struct Atomics {
  struct Words {
    T add, exchange, compare_exchange;
  };

  Peers peers;
  Words* words;
  T* returned;  // own: the sum of what exchange gave back
  int rounds;

  // What a rank leaves there in one round.
  HEDDLE_HOST_DEVICE static T token(int rank, int round) { return static_cast<T>(1 + rank * 1000 + round); }

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) {
      Words& at = *peers.at(0, words);
      T sum = 0;
      for (int round = 0; round < rounds; ++round) {
        atomic_add(&at.add, static_cast<T>(peers.rank + 1));
        sum = static_cast<T>(sum + atomic_exchange(&at.exchange, token(peers.rank, round)));
        T before = atomic_load(&at.compare_exchange);
        while (true) {
          const T found = atomic_compare_exchange(&at.compare_exchange, before, static_cast<T>(before + 1));
          if (found == before) break;
          before = found;
        }
      }
      *returned = sum;
    }
    group.sync();
  }
};

std::uint64_t* words_at(std::byte* place) {
  return reinterpret_cast<std::uint64_t*>(place);
}

template <class T>
void try_atomics(Context& context) {
  using Body = Atomics<T>;
  auto* words = reinterpret_cast<typename Body::Words*>(context.left());
  auto* returned = reinterpret_cast<T*>(context.own());
  const int rounds = std::max(20, context.options().rounds / context.size());
  const typename Body::Words start{};
  context.meet();
  context.write(words, std::as_bytes(std::span(&start, 1)));
  context.meet();
  enqueue_body(context.stream(), kOneBlock, Body{context.fabric().peers(), words, returned, rounds});
  context.meet();
  // Every rank's sum to rank 0, which adds them up.
  T* sums = reinterpret_cast<T*>(context.right());
  context.fabric().put(context.stream(), 0, sums + context.rank(), returned, sizeof(T));
  context.meet();
  if (context.rank() != 0) return;

  typename Body::Words got{};
  const Bytes bytes = context.read(words, sizeof(got));
  std::memcpy(&got, bytes.data(), sizeof(got));
  T handed_back = got.exchange;
  const Bytes sum_bytes = context.read(sums, sizeof(T) * static_cast<std::size_t>(context.size()));
  T expected_add = 0, expected_exchange = 0;
  for (int rank = 0; rank < context.size(); ++rank) {
    T sum = 0;
    std::memcpy(&sum, &sum_bytes[sizeof(T) * static_cast<std::size_t>(rank)], sizeof(T));
    handed_back = static_cast<T>(handed_back + sum);
    expected_add = static_cast<T>(expected_add + static_cast<T>(rounds * (rank + 1)));
    for (int round = 0; round < rounds; ++round)
      expected_exchange = static_cast<T>(expected_exchange + Body::token(rank, round));
  }
  const auto same = [](std::string_view what, T value, T wanted) {
    expect(value == wanted, "atomic_{} on {} bytes by all ranks: {} instead of {}", what, sizeof(T), value, wanted);
  };
  same("add", got.add, expected_add);
  same("exchange", handed_back, expected_exchange);
  same("compare_exchange", got.compare_exchange, static_cast<T>(rounds * context.size()));
}

}  // namespace

void device_moves_bytes(Context& context) {
  // Odd sizes and places, so that heads and tails are there, and no vectors where addresses differ.
  for (const std::size_t size_bytes : {0, 1, 15, 16, 1000, 65537}) {
    for (const std::size_t offset : {0, 1, 4, 8}) {
      const std::size_t stride_bytes = size_bytes + 48;
      const auto bytes_of = [&](int rank) {
        return pattern(size_bytes, size_bytes * 100 + static_cast<std::size_t>(rank));
      };
      context.write(context.left(), Bytes(3 * stride_bytes + 64));
      context.write(context.right() + offset, bytes_of(context.rank()));
      const std::vector<std::uint64_t> start{static_cast<std::uint64_t>(context.rank()) * 10, 0};
      std::byte* words = context.right() + 200'000;
      context.write(words, std::as_bytes(std::span(start)));
      context.meet();
      enqueue_body(context.stream(), kOneBlock,
                   Copies{context.fabric().peers(), context.right() + offset, context.left(), size_bytes, stride_bytes,
                          words_at(words)});
      context.meet();
      const auto piece = [&](std::size_t index) {
        return context.read(context.left() + index * stride_bytes, size_bytes);
      };
      const auto what = [&](std::string_view name) {
        return fmt::format("{} of {} bytes, offset {}", name, size_bytes, offset);
      };
      expect_bytes(piece(0), bytes_of(context.previous()), what("put"));
      expect_bytes(piece(1), bytes_of(context.next()), what("get"));
      expect_bytes(piece(2), bytes_of(context.previous()), what("copy"));
      expect_bytes(context.read(context.left() + size_bytes, 48), Bytes(48), what("behind put"));
      const std::uint64_t stored = context.read_word(words + 8);
      expect(stored == static_cast<std::uint64_t>(context.rank()) * 10 + 1, "load and store: {}", stored);
      context.meet();
    }
  }
}

void device_waits(Context& context) {
  context.clear_flags();
  context.write(context.left(), Bytes(256));
  context.write(context.own(), Bytes(16));
  context.meet();
  const int rounds = context.rounds();
  enqueue_body(context.stream(), kOneBlock,
               PingPong{context.fabric().peers(), words_at(context.left()), context.flag(0), context.flag(16),
                        context.flag(32), words_at(context.own()), words_at(context.own()) + 1, rounds});
  const std::uint64_t wrong = context.read_word(context.own());
  expect(wrong == 0, "{} of {} payloads were not what the flag had promised", wrong, rounds);
  expect(context.read_word(context.own() + 8) == 1, "the waits did not end well");
  const std::uint64_t count = context.read_word(context.flag(32));
  expect(count == static_cast<std::uint64_t>(5 * context.size()), "signal_add: {}", count);
  context.meet();
}

void store_buffering(Context& context) {
  context.clear_flags();
  const int rounds = std::min(context.rounds(), 4096);
  const auto count = static_cast<std::size_t>(rounds);
  context.write(context.left(), Bytes(count * 8));
  context.write(context.own(), Bytes(count * 8 + 8));
  context.meet();
  std::uint64_t* ok = words_at(context.own()) + rounds;
  enqueue_body(context.stream(), kOneBlock,
               StoreBuffering{context.fabric().peers(), words_at(context.left()), words_at(context.own()),
                              context.flag(0), ok, rounds});
  expect(context.read_word(ok) == 1, "the waits did not end well");
  // What the partner has seen comes here, and is compared.
  const int partner = context.rank() ^ 1;
  if (partner < context.size())
    context.fabric().put(context.stream(), partner, context.right(), context.own(), count * 8);
  context.meet();
  if (partner < context.size()) {
    const Bytes mine = context.read(context.own(), count * 8);
    const Bytes theirs = context.read(context.right(), count * 8);
    for (std::size_t round = 0; round < count; ++round)
      expect(mine[round * 8] != std::byte{0} || theirs[round * 8] != std::byte{0},
             "round {}: ranks {} and {} have both missed the other's store", round, context.rank(), partner);
  }
  context.meet();
}

void atomics_under_contention(Context& context) {
  try_atomics<std::uint64_t>(context);
  try_atomics<std::int64_t>(context);
  try_atomics<std::int32_t>(context);
  try_atomics<std::uint32_t>(context);
  context.meet();
}

void team_peers_are_the_teams(Context& context) {
  // The ranks with addresses backwards, and all but the last: flags go round in the team's order. On several machines each has
  // its teams.
  Ranks backwards = context.fabric().addressable();
  std::reverse(backwards.begin(), backwards.end());
  Ranks fewer(backwards.begin() + (backwards.size() > 1 ? 1 : 0), backwards.end());
  for (const Ranks& team : {backwards, fewer}) {
    context.clear_flags();
    context.write(context.left(), Bytes(256));
    context.write(context.own(), Bytes(16));
    context.meet();
    const auto me = std::find(team.begin(), team.end(), context.rank());
    if (me != team.end()) {
      const Peers peers = context.fabric().peers(team);
      expect(peers.size == static_cast<int>(team.size()) && peers.rank == me - team.begin(),
             "rank {} of {} in its team", peers.rank, peers.size);
      enqueue_body(context.stream(), kOneBlock,
                   PingPong{peers, words_at(context.left()), context.flag(0), context.flag(16), context.flag(32),
                            words_at(context.own()), words_at(context.own()) + 1, 20});
      expect(context.read_word(context.own()) == 0, "payloads were not what the flag had promised");
      expect(context.read_word(context.own() + 8) == 1, "the waits did not end well");
    }
    context.meet();
  }
}

void a_word_is_put_at_once(Context& context) {
  // The previous rank puts one value after the other while this rank polls.
  constexpr std::uint64_t kLast = 250;
  Fabric& fabric = context.fabric();
  std::vector<std::uint64_t> values(kLast);
  for (std::uint64_t i = 0; i < kLast; ++i) values[i] = eight_of(i + 1);
  auto* const torn = reinterpret_cast<std::uint64_t*>(context.own());
  auto* const own_values = torn + 1;
  context.write(context.own(), Bytes(sizeof(std::uint64_t)));
  context.write(reinterpret_cast<std::byte*>(own_values), std::as_bytes(std::span(values)));
  context.clear_flags();
  ThreadPool pool(1);
  Stream other = fabric.device().kind == DeviceKind::cpu ? Stream(pool) : Stream(fabric.device());
  fabric.meet();  // no stream is made while a peer's kernel waits
  enqueue_body(context.stream(), kOneBlock,
               WatchWord{fabric.peers(), context.previous(), context.flag(0), values.back(), torn});
  for (std::uint64_t i = 0; i < kLast; ++i)
    fabric.put(other, context.next(), context.flag(0), own_values + i, sizeof(std::uint64_t));
  fabric.synchronize(other);
  const std::uint64_t found = context.read_word(torn);
  expect(found == 0, "a put of 8 aligned bytes was seen in parts {} times", found);
  context.meet();
}

}  // namespace heddle::conformance

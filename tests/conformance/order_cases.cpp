// Who has seen a flag, or passed a barrier, sees what was written before.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "conformance/cases.h"

namespace heddle::conformance {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t* word(std::byte* area, std::size_t index) {
  return reinterpret_cast<std::uint64_t*>(area) + index;
}

// The words of the own memory hold `base`, base + 1, ...: sources of puts.
void fill_own_with_numbers(Context& context, std::size_t count, std::uint64_t base) {
  std::vector<std::uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), base);
  context.write(context.own(), std::as_bytes(std::span(numbers)));
}

bool contains(const Ranks& team, int rank) {
  return std::find(team.begin(), team.end(), rank) != team.end();
}

// Members put their round into a word at each other's, meet, and look. All rounds are enqueued before one is looked at.
// `first_word` is where the team's words lie, one a rank of the world and parity of the round.
struct TeamRounds {
  Ranks team;
  int rounds;
  std::size_t first_word;
  Seen seen;  // [round][world rank]

  void enqueue(Context& context, Stream& stream) {
    const auto size = static_cast<std::size_t>(context.size());
    for (int round = 0; round < rounds; ++round) {
      // Two places, alternating: a rank that is a round ahead writes the other one.
      const std::size_t words = first_word + static_cast<std::size_t>(round % 2) * size;
      for (const int peer : team)
        context.fabric().put(stream, peer, word(context.left(), words + static_cast<std::size_t>(context.rank())),
                             word(context.own(), static_cast<std::size_t>(round)), kWord);
      context.fabric().barrier(stream, team);
      seen.note(stream, static_cast<std::size_t>(round) * size, word(context.left(), words), size);
    }
  }

  // The own words hold round + 1.
  void check(const Context& context) {
    const std::vector<std::uint64_t> words = seen.read();
    for (int round = 0; round < rounds; ++round) {
      for (const int peer : team) {
        const std::uint64_t got = words[static_cast<std::size_t>(round * context.size() + peer)];
        expect(got == static_cast<std::uint64_t>(round) + 1, "barrier {} of a team of {}: rank {}'s word is {}",
               round + 1, team.size(), peer, got);
      }
    }
  }
};

Seen team_seen(Context& context, int rounds) {
  return Seen(context, static_cast<std::size_t>(rounds) * static_cast<std::size_t>(context.size()));
}

std::vector<Ranks> sub_teams(int size) {
  Ranks world(static_cast<std::size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  const auto half = world.begin() + size / 2;
  Ranks evens, odds;
  for (const int rank : world) (rank % 2 == 0 ? evens : odds).push_back(rank);
  std::vector<Ranks> teams{Ranks(world.begin(), half),
                           Ranks(half, world.end()),
                           evens,
                           odds,
                           Ranks(world.begin(), world.end() - 1),
                           Ranks(world.rbegin(), world.rend() - 1)};
  if (size > 3) teams.push_back({size - 1, 0, 2});  // 3 of them, in an order of their own
  if (size > 5) teams.emplace_back(world.begin(), world.begin() + 5);
  for (int rank = 0; size > 5 && rank + 1 < size; rank += 2) teams.push_back({rank, rank + 1});
  std::erase_if(teams, [](const Ranks& team) { return team.empty(); });
  return teams;
}

}  // namespace

void signal_sets(Context& context) {
  context.clear_flags();
  const auto mine = [&](int rank) { return context.flag(rank); };
  for (const std::uint64_t value : {5, 9}) {
    for (int peer = 0; peer < context.size(); ++peer)
      context.fabric().signal(context.stream(), peer, mine(context.rank()), value);
    for (int peer = 0; peer < context.size(); ++peer) {
      context.fabric().wait(context.stream(), peer, mine(peer), value - 1, "less than it is");
      context.fabric().wait(context.stream(), peer, mine(peer), value, "what it is");
      const std::uint64_t got = context.read_word(mine(peer));
      expect(got == value, "rank {} has signalled {}, and the flag is {}", peer, value, got);
    }
    context.meet();
  }
  context.fabric().wait(context.stream(), context.rank(), mine(context.rank()), 0, "nothing");
  context.meet();
}

void signal_add_adds(Context& context) {
  context.clear_flags();
  const int rounds = std::max(10, context.rounds() / 10);
  for (int round = 0; round < rounds; ++round)
    for (int peer = 0; peer < context.size(); ++peer)
      context.fabric().signal_add(context.stream(), peer, context.flag(0),
                                  static_cast<std::uint64_t>(context.rank()) + 1);
  const auto sum =
      static_cast<std::uint64_t>(rounds) * static_cast<std::uint64_t>(context.size() * (context.size() + 1) / 2);
  context.fabric().wait(context.stream(), context.next(), context.flag(0), sum, "all have added");
  const std::uint64_t got = context.read_word(context.flag(0));
  expect(got == sum, "all ranks have added {} together, and the flag is {}", sum, got);
  context.meet();
}

void fence_orders_puts(Context& context) {
  context.clear_flags();
  const int rounds = std::max(10, context.rounds() / 10);
  // Two puts to the same place, a large one and a small, then a large one: the later one stays.
  const std::size_t large = std::min<std::size_t>(context.options().largest_bytes, 32768);
  for (int round = 1; round <= rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round);
    const std::size_t second = round % 2 == 0 ? large : 1 + epoch % 64;
    const auto first_of = [&](int rank) { return pattern(large, epoch * 1000 + static_cast<std::uint64_t>(rank)); };
    const auto second_of = [&](int rank) { return pattern(second, epoch * 2000 + static_cast<std::uint64_t>(rank)); };
    context.write(context.own(), first_of(context.rank()));
    context.write(context.right(), second_of(context.rank()));
    Fabric& fabric = context.fabric();
    Stream& stream = context.stream();
    fabric.put(stream, context.next(), context.left(), context.own(), large);
    fabric.fence(stream);
    fabric.put(stream, context.next(), context.left(), context.right(), second);
    fabric.signal(stream, context.next(), context.flag(0), epoch);
    fabric.wait(stream, context.previous(), context.flag(0), epoch, "put fence put");
    Bytes wanted = first_of(context.previous());
    const Bytes later = second_of(context.previous());
    std::copy(later.begin(), later.end(), wanted.begin());
    expect_bytes(context.read(context.left(), large), wanted, fmt::format("round {}: put, fence, put", round));
    fabric.signal(stream, context.previous(), context.flag(1), epoch);
    fabric.wait(stream, context.next(), context.flag(1), epoch, "taken");
  }
  context.meet();
}

void barrier_of_the_world(Context& context) {
  Ranks world(static_cast<std::size_t>(context.size()));
  std::iota(world.begin(), world.end(), 0);
  const int rounds = context.rounds() / 4;
  TeamRounds all{.team = world, .rounds = rounds, .first_word = 0, .seen = team_seen(context, rounds)};
  fill_own_with_numbers(context, static_cast<std::size_t>(all.rounds), 1);
  context.meet();
  all.enqueue(context, context.stream());
  context.fabric().synchronize(context.stream());
  all.check(context);
  context.meet();
}

void barriers_of_sub_teams(Context& context) {
  const std::vector<Ranks> teams = sub_teams(context.size());
  std::vector<TeamRounds> courses;
  for (std::size_t i = 0; i < teams.size(); ++i) {
    // Each team another number of rounds, so that none could live off another's.
    courses.push_back({.team = teams[i],
                       .rounds = 3 + static_cast<int>(i),
                       .first_word = 2 * i * static_cast<std::size_t>(context.size()),
                       .seen = team_seen(context, 3 + static_cast<int>(i))});
  }
  fill_own_with_numbers(context, 64, 1);
  context.meet();
  for (TeamRounds& course : courses)
    if (contains(course.team, context.rank())) course.enqueue(context, context.stream());
  context.fabric().synchronize(context.stream());
  for (TeamRounds& course : courses)
    if (contains(course.team, context.rank())) course.check(context);
  context.meet();
}

void barriers_on_two_streams(Context& context) {
  // Two teams: barriers of one team are told apart by their order in one stream.
  const Ranks pair = context.rank() < 2 && context.size() > 2 ? Ranks{0, 1} : Ranks{context.rank()};
  Ranks world(static_cast<std::size_t>(context.size()));
  std::iota(world.begin(), world.end(), 0);
  const auto size = static_cast<std::size_t>(context.size());
  TeamRounds all{.team = world, .rounds = 40, .first_word = 0, .seen = team_seen(context, 40)};
  TeamRounds two{.team = pair, .rounds = 57, .first_word = 2 * size, .seen = team_seen(context, 57)};
  fill_own_with_numbers(context, 64, 1);
  context.meet();
  ThreadPool pool(1);
  Stream other = context.fabric().device().kind == DeviceKind::cpu ? Stream(pool) : Stream(context.fabric().device());
  context.fabric().meet();  // no stream is made while a peer's kernel waits
  two.enqueue(context, other);
  all.enqueue(context, context.stream());
  context.fabric().synchronize(other);
  context.fabric().synchronize(context.stream());
  all.check(context);
  two.check(context);
  context.meet();
}

void message_passing(Context& context) {
  // Two words, then the flag; nobody is told that the words were read before the next come, but for the answer.
  context.clear_flags();
  const int rounds = context.rounds();
  fill_own_with_numbers(context, std::min<std::size_t>(1000, context.options().largest_bytes / kWord), 1);
  Seen seen(context, static_cast<std::size_t>(rounds) * 2);
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const auto source = [&](int round) { return word(context.own(), static_cast<std::size_t>(round % 1000)); };
  for (int round = 0; round < rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round) + 1;
    fabric.put(stream, context.next(), word(context.left(), 0), source(round), kWord);
    fabric.put(stream, context.next(), word(context.left(), 100), source(round), kWord);
    fabric.signal(stream, context.next(), context.flag(0), epoch);
    fabric.wait(stream, context.previous(), context.flag(0), epoch, "message");
    seen.note(stream, static_cast<std::size_t>(round) * 2, word(context.left(), 0));
    seen.note(stream, static_cast<std::size_t>(round) * 2 + 1, word(context.left(), 100));
    fabric.signal(stream, context.previous(), context.flag(1), epoch);
    fabric.wait(stream, context.next(), context.flag(1), epoch, "answer");
  }
  const std::vector<std::uint64_t> got = seen.read();
  for (int round = 0; round < rounds; ++round)
    for (const std::size_t which : {0, 1})
      expect(got[static_cast<std::size_t>(round) * 2 + which] == static_cast<std::uint64_t>(round % 1000) + 1,
             "message {}: word {} is {}", round, which, got[static_cast<std::size_t>(round) * 2 + which]);
  context.meet();
}

void message_to_a_third(Context& context) {
  // Each rank puts to the next and signals the one after that, which gets it from the one between.
  context.clear_flags();
  const int rounds = context.rounds() / 4;
  fill_own_with_numbers(context, static_cast<std::size_t>(rounds), 1);
  Seen seen(context, static_cast<std::size_t>(rounds));
  std::byte* fetched = context.right();
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (int round = 0; round < rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round) + 1;
    fabric.put(stream, context.next(), context.left(), word(context.own(), static_cast<std::size_t>(round)), kWord);
    fabric.signal(stream, context.next(2), context.flag(0), epoch);
    fabric.wait(stream, context.previous(2), context.flag(0), epoch, "third");
    fabric.get(stream, context.previous(), fetched, context.left(), kWord);
    seen.note(stream, static_cast<std::size_t>(round), fetched);
    fabric.signal(stream, context.previous(2), context.flag(1), epoch);
    fabric.wait(stream, context.next(2), context.flag(1), epoch, "third's answer");
  }
  const std::vector<std::uint64_t> got = seen.read();
  for (int round = 0; round < rounds; ++round)
    expect(got[static_cast<std::size_t>(round)] == static_cast<std::uint64_t>(round) + 1, "round {}: the word is {}",
           round, got[static_cast<std::size_t>(round)]);
  context.meet();
}

void messages_are_causal(Context& context) {
  // Rank 0 writes to the last rank and tells rank 1, that tells the next, and so on: the last sees what 0 wrote.
  context.clear_flags();
  const int rounds = context.rounds() / 4;
  const int last = context.size() - 1;
  fill_own_with_numbers(context, static_cast<std::size_t>(rounds), 1);
  Seen seen(context, static_cast<std::size_t>(rounds));
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (int round = 0; round < rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round) + 1;
    if (context.rank() == 0)
      fabric.put(stream, last, context.left(), word(context.own(), static_cast<std::size_t>(round)), kWord);
    if (context.rank() > 0) fabric.wait(stream, context.previous(), context.flag(0), epoch, "hearsay");
    if (context.rank() == last) seen.note(stream, static_cast<std::size_t>(round), context.left());
    fabric.signal(stream, context.next(), context.flag(0), epoch);  // from the last to rank 0: it was read
    if (context.rank() == 0) fabric.wait(stream, last, context.flag(0), epoch, "it was read");
  }
  const std::vector<std::uint64_t> got = seen.read();
  for (int round = 0; context.rank() == last && round < rounds; ++round)
    expect(got[static_cast<std::size_t>(round)] == static_cast<std::uint64_t>(round) + 1, "round {}: the word is {}",
           round, got[static_cast<std::size_t>(round)]);
  context.meet();
}

void flags_are_used_again(Context& context) {
  // A ring of three places, whose flags count epochs and are never cleared: the sender is up to two rounds ahead.
  context.clear_flags();
  constexpr std::size_t kPlaces = 3;
  const int rounds = 2 * context.rounds();
  fill_own_with_numbers(context, 1000, 1);
  Seen seen(context, static_cast<std::size_t>(rounds));
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (int round = 0; round < rounds; ++round) {
    const std::size_t place = static_cast<std::size_t>(round) % kPlaces;
    const std::uint64_t epoch = static_cast<std::uint64_t>(round) / kPlaces + 1;  // of the place
    std::uint64_t* full = context.flag(static_cast<int>(place));
    std::uint64_t* empty = context.flag(static_cast<int>(place + kPlaces));
    fabric.wait(stream, context.next(), empty, epoch - 1, "place is free");
    fabric.put(stream, context.next(), word(context.left(), place), word(context.own(), std::size_t(round % 1000)),
               kWord);
    fabric.signal(stream, context.next(), full, epoch);
    fabric.wait(stream, context.previous(), full, epoch, "place is full");
    seen.note(stream, static_cast<std::size_t>(round), word(context.left(), place));
    fabric.signal(stream, context.previous(), empty, epoch);
  }
  const std::vector<std::uint64_t> got = seen.read();
  for (int round = 0; round < rounds; ++round)
    expect(got[static_cast<std::size_t>(round)] == static_cast<std::uint64_t>(round % 1000) + 1,
           "round {}: the word is {}", round, got[static_cast<std::size_t>(round)]);
  context.meet();
}

void store_buffering_with_barrier(Context& context) {
  // Both put, both meet, both look: neither may miss the other's.
  const int rounds = context.rounds() / 10;
  fill_own_with_numbers(context, static_cast<std::size_t>(rounds), 1);
  context.meet();
  Seen seen(context, static_cast<std::size_t>(rounds));
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (int round = 0; round < rounds; ++round) {
    fabric.put(stream, context.next(), context.left(), word(context.own(), static_cast<std::size_t>(round)), kWord);
    fabric.fence(stream);
    fabric.barrier(stream);
    fabric.get(stream, context.next(), context.right(), context.left(), kWord);
    seen.note(stream, static_cast<std::size_t>(round), context.right());
    fabric.barrier(stream);
  }
  const std::vector<std::uint64_t> got = seen.read();
  for (int round = 0; round < rounds; ++round)
    expect(got[static_cast<std::size_t>(round)] == static_cast<std::uint64_t>(round) + 1, "round {}: the word is {}",
           round, got[static_cast<std::size_t>(round)]);
  context.meet();
}

}  // namespace heddle::conformance

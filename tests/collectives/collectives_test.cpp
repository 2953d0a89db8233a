#include <gmock/gmock.h>

#include <mutex>
#include <string>

#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/barrier.h"
#include "collectives/broadcast.h"
#include "collectives/payload.h"
#include "collectives/ranks.h"
#include "collectives/reduce_scatter.h"

namespace heddle {
namespace {

enum class Place { out, in };       // whether output is input
constexpr std::size_t kGuard = 64;  // bytes behind an output that must stay as they were

struct Case {
  Collective collective;
  DType dtype;
  std::size_t count;
  Place place = Place::out;
  Memory memory = Memory::any;
  std::size_t misalign = 0;  // elements that a buffer begins past an aligned address
};

std::string text_of(const Case& c, const Choice& choice, int size, int rank) {
  return std::string(name_of(c.collective)) + " " + std::string(name_of(c.dtype)) + " count " +
         std::to_string(c.count) + (c.place == Place::in ? " in place" : "") +
         (c.memory == Memory::symmetric ? " symmetric" : "") + " by " + std::string(name_of(choice.algorithm)) +
         " on rank " + std::to_string(rank) + " of " + std::to_string(size);
}

bool has_pieces_in(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_to_all;
}

Bits slice(const Bits& bits, std::size_t piece, std::size_t bytes) {
  return {bits.begin() + static_cast<std::ptrdiff_t>(piece * bytes),
          bits.begin() + static_cast<std::ptrdiff_t>((piece + 1) * bytes)};
}

// What `rank` must end with, from what all began with.
Bits expected(const Case& c, const std::vector<Bits>& inputs, int rank, int root) {
  const std::size_t bytes = c.count * size_of(c.dtype), me = static_cast<std::size_t>(rank);
  Bits result;
  switch (c.collective) {
    case Collective::all_reduce:
      return sum_in_rank_order(c.dtype, inputs);
    case Collective::reduce_scatter:
      return slice(sum_in_rank_order(c.dtype, inputs), me, bytes);
    case Collective::all_gather:
      for (const Bits& input : inputs) result.insert(result.end(), input.begin(), input.end());
      return result;
    case Collective::all_to_all:
      for (const Bits& input : inputs) {
        const Bits piece = slice(input, me, bytes);
        result.insert(result.end(), piece.begin(), piece.end());
      }
      return result;
    case Collective::broadcast:
      return inputs[static_cast<std::size_t>(root)];
    case Collective::barrier:
      break;
  }
  return result;
}

void call(Communicator& communicator, const Case& c, const void* in, void* out, int root, Stream& stream) {
  switch (c.collective) {
    case Collective::all_reduce:
      return all_reduce(communicator, {in, out, c.count, c.dtype, c.memory}, stream);
    case Collective::reduce_scatter:
      return reduce_scatter(communicator, {in, out, c.count, c.dtype, c.memory}, stream);
    case Collective::all_gather:
      return all_gather(communicator, {in, out, c.count, c.dtype, c.memory}, stream);
    case Collective::all_to_all:
      return all_to_all(communicator, {in, out, c.count, c.dtype, c.memory}, stream);
    case Collective::broadcast:
      return broadcast(communicator, {in, out, c.count, c.dtype, root, c.memory}, stream);
    case Collective::barrier:
      return barrier(communicator, stream);
  }
}

// Two buffers of one rank, of its own or of the symmetric heap.
struct Buffers {
  Bits own[2];
  std::byte* data[2];

  Buffers(Communicator& communicator, Memory memory, std::size_t bytes) {
    for (int i = 0; i < 2; ++i) {
      if (memory == Memory::any) own[i].resize(bytes);
      data[i] = memory == Memory::any ? own[i].data() : communicator.fabric().allocate(bytes).data;
    }
  }
};

void run_case(Communicator& communicator, Stream& stream, const Case& c, const Choice& choice, std::uint32_t seed,
              Buffers& buffers) {
  const int n = communicator.size(), rank = communicator.rank();
  const int root = static_cast<int>(seed) % n;
  const std::size_t pieces = static_cast<std::size_t>(n), element_bytes = size_of(c.dtype);
  std::vector<Bits> inputs;
  for (int p = 0; p < n; ++p)
    inputs.push_back(payload(c.dtype, c.count * (has_pieces_in(c.collective) ? pieces : 1), p, seed));
  const Bits want = expected(c, inputs, rank, root);
  const Bits& input = inputs[static_cast<std::size_t>(rank)];

  std::byte* in = buffers.data[0] + c.misalign * element_bytes;
  std::byte* out = buffers.data[1] + c.misalign * element_bytes;
  const std::size_t own_piece = static_cast<std::size_t>(rank) * c.count * element_bytes;
  if (c.place == Place::in) {
    in = out;
    if (c.collective == Collective::all_gather) in = out + own_piece;
    if (c.collective == Collective::reduce_scatter) {
      in = buffers.data[0] + c.misalign * element_bytes;
      out = in + own_piece;
    }
  }
  const bool guarded = c.place == Place::out;
  if (guarded) std::memset(out, 0xee, want.size() + kGuard);  // what is not written shows
  if (!input.empty()) std::memcpy(in, input.data(), input.size());
  // What others write into must not be touched after they begin.
  if (c.memory == Memory::symmetric) communicator.fabric().barrier(stream, communicator.team());
  communicator.fabric().synchronize(stream);

  communicator.force(choice);
  call(communicator, c, in, out, root, stream);
  communicator.fabric().synchronize(stream);

  const Bits got(out, out + want.size());
  const std::ptrdiff_t at = first_difference(c.dtype, got, want);
  EXPECT_EQ(at, -1) << text_of(c, choice, n, rank) << " differs at element " << at << ": "
                    << element(got, c.dtype, static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0))) << " for "
                    << element(want, c.dtype, static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0)));
  for (std::size_t i = 0; guarded && i < kGuard; ++i)
    ASSERT_EQ(out[want.size() + i], std::byte{0xee}) << text_of(c, choice, n, rank) << " writes past its end";
}

// Nothing, packets that are not full, fewer packets than ranks, odd numbers of elements, and, with the small staging of
// these tests (2 KiB a rank at least), several rounds.
constexpr std::size_t kCounts[] = {0, 1, 7, 64, 4099};

std::vector<Case> cases_of(Collective collective) {
  std::vector<Case> cases;
  for (const std::size_t count : kCounts) {
    for (const Place place : {Place::out, Place::in})
      for (const Memory memory : {Memory::any, Memory::symmetric}) {
        // The own piece of a symmetric buffer is aligned only where the pieces are.
        if (collective == Collective::reduce_scatter && place == Place::in && memory == Memory::symmetric &&
            count % 4 != 0)
          continue;
        cases.push_back({collective, DType::float32, count, place, memory});
      }
    cases.push_back({.collective = collective, .dtype = DType::float32, .count = count, .misalign = 1});
  }
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const std::size_t count : {std::size_t{1}, std::size_t{31}, std::size_t{1000}})
      cases.push_back({.collective = collective, .dtype = dtype, .count = count, .misalign = count % 2});
  return cases;
}

struct Setting {
  Collective collective;
  int size;
};

class EveryCollective : public testing::TestWithParam<Setting> {};

TEST_P(EveryCollective, GivesTheBitsOfTheOracleByEveryAlgorithm) {
  const std::vector<Case> cases = cases_of(GetParam().collective);
  RankOptions options;
  options.communicator = {.low_latency_bytes = 32 << 10, .two_phase_bytes = 32 << 10, .staging_bytes = 2 << 10};
  run_ranks(GetParam().size, options, [&](Communicator& communicator, Stream& stream) {
    constexpr std::size_t kBytes = std::size_t{8} * 4099 * 4 + 256;
    Buffers own(communicator, Memory::any, kBytes), symmetric(communicator, Memory::symmetric, kBytes);
    std::uint32_t seed = 0;
    for (const Case& c : cases)
      for (const Algorithm algorithm :
           {Algorithm::low_latency, Algorithm::two_phase, Algorithm::direct, Algorithm::put}) {
        if (algorithm == Algorithm::two_phase && c.collective != Collective::all_reduce) continue;
        run_case(communicator, stream, c, {algorithm}, ++seed, c.memory == Memory::any ? own : symmetric);
      }
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all, Collective::broadcast})
    for (const int size : {1, 2, 3, 4, 5, 8}) all.push_back({collective, size});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective, testing::ValuesIn(settings()), [](const auto& one) {
  return std::string(name_of(one.param.collective)) + "_on_" + std::to_string(one.param.size);
});

TEST(SubTeams, WorkAtTheSameTimeAndInTheirOwnOrderOfRanks) {
  const Ranks teams[] = {{4, 1, 2}, {3}, {0, 5}};
  const auto team_of = [&](int rank) {
    for (const Ranks& team : teams)
      if (std::find(team.begin(), team.end(), rank) != team.end()) return team;
    return Ranks{};
  };
  run_ranks(6, {}, team_of, [](Communicator& communicator, Stream& stream) {
    for (const Algorithm algorithm : {Algorithm::low_latency, Algorithm::two_phase, Algorithm::direct, Algorithm::put})
      for (const Collective collective : {Collective::all_reduce, Collective::all_to_all, Collective::broadcast}) {
        Buffers buffers(communicator, Memory::any, 8192);
        run_case(communicator, stream, {collective, DType::float32, 100}, {algorithm}, 5, buffers);
      }
  });
}

TEST(Barrier, LetsNobodyThroughBeforeAllHaveCome) {
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::put}) {
    std::atomic<int> came = 0;
    run_ranks(4, {}, [&](Communicator& communicator, Stream& stream) {
      communicator.force(Choice{algorithm});
      for (int round = 1; round <= 50; ++round) {
        stream.enqueue([&came](ThreadPool&) { ++came; });
        barrier(communicator, stream);
        stream.enqueue([&came, round](ThreadPool&) { EXPECT_GE(came, 4 * round); });
        barrier(communicator, stream);
      }
      communicator.fabric().synchronize(stream);
    });
  }
}

}  // namespace
}  // namespace heddle

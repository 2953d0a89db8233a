// Collectives that copy bytes (all_gather, all_to_all, broadcast) deliver every bit pattern, including those with a
// meaning in packets: integers of -1, NaNs of any payload. Every algorithm, at every size around a packet's borders.
#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "collectives/all_gather.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/cases.h"
#include "collectives/ranks.h"

namespace heddle {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

// Words of 64 bits, repeated; each rank begins at another one.
struct Pattern {
  const char* name;
  std::vector<std::uint64_t> words;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all{
      {"-1", {kOnes}},
      {"-1 and 0", {kOnes, 0}},
      {"-1 and 1 as 32 bits", {0x1'ffff'ffff, kOnes, 0xffff'ffff'0000'0001}},
      {"the escape word", {kOnes - 1}},
      {"empty, escape, neighbours", {kOnes, kOnes - 1, kOnes - 2, kOnes, kOnes, kOnes << 1, 0, kOnes >> 1, kOnes - 1}},
      {"what once stood for -1", {0xfffe'fffe'fffe'fffe, kOnes, 0x7fff'7fff'7fff'7fff}},
  };
  return all;
}

Bytes piece_of(const Pattern& pattern, std::size_t bytes, int rank, int piece) {
  Bytes all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::uint64_t word =
        pattern.words[(i / 8 + static_cast<std::size_t>(rank) + 2 * static_cast<std::size_t>(piece)) %
                      pattern.words.size()];
    all[i] = static_cast<std::byte>(word >> (i % 8 * 8));
  }
  return all;
}

struct Move {
  Collective collective;
  Algorithm algorithm;
  std::size_t bytes;  // of a piece
};

// What this rank got, one call after the other with nothing between them.
Bytes moved(Communicator& communicator, Stream& stream, const Move& move, const Pattern& pattern, int root) {
  const int ranks = communicator.size(), rank = communicator.rank();
  const auto pieces = static_cast<std::size_t>(ranks);
  Bytes in, out(move.collective == Collective::broadcast ? move.bytes : pieces * move.bytes);
  for (int piece = 0; piece < (move.collective == Collective::all_to_all ? ranks : 1); ++piece) {
    const Bytes one = piece_of(pattern, move.bytes, rank, piece);
    in.insert(in.end(), one.begin(), one.end());
  }
  const std::size_t count = move.bytes / 2;
  communicator.force(Choice{move.algorithm});
  if (move.collective == Collective::all_gather)
    all_gather(communicator, {in.data(), out.data(), count, DType::bfloat16}, stream);
  else if (move.collective == Collective::all_to_all)
    all_to_all(communicator, {in.data(), out.data(), count, DType::bfloat16}, stream);
  else
    broadcast(communicator, {in.data(), out.data(), count, DType::bfloat16, root}, stream);
  communicator.fabric().synchronize(stream);
  return out;
}

Bytes wanted(const Move& move, const Pattern& pattern, int ranks, int rank, int root) {
  if (move.collective == Collective::broadcast) return piece_of(pattern, move.bytes, root, 0);
  Bytes all;
  for (int p = 0; p < ranks; ++p) {
    const Bytes one = piece_of(pattern, move.bytes, p, move.collective == Collective::all_to_all ? rank : 0);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

class ExactBytes : public testing::TestWithParam<int> {};

TEST_P(ExactBytes, ArriveByEveryAlgorithmWhateverTheyMean) {
  run_ranks(GetParam(), {}, [](Communicator& communicator, Stream& stream) {
    int call = 0;
    for (const Collective collective : {Collective::all_gather, Collective::all_to_all, Collective::broadcast})
      for (const Algorithm algorithm : algorithms_of(collective, DeviceKind::cpu))
        for (const std::size_t bytes : {2, 8, 14, 16, 18, 24, 30, 32, 34, 64, 130, 1024})
          for (const Pattern& pattern : patterns()) {
            const Move move{collective, algorithm, bytes};
            const int root = ++call % communicator.size();
            ASSERT_EQ(moved(communicator, stream, move, pattern, root),
                      wanted(move, pattern, communicator.size(), communicator.rank(), root))
                << name_of(collective) << " of " << bytes << " bytes by " << name_of(algorithm) << ": " << pattern.name
                << " on rank " << communicator.rank();
          }
  });
}

INSTANTIATE_TEST_SUITE_P(Collectives, ExactBytes, testing::Range(2, 9),
                         [](const auto& one) { return "on_" + std::to_string(one.param); });

}  // namespace
}  // namespace heddle

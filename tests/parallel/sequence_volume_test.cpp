#include "parallel/sequence/volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;

// A layer whose tokens divide by all ranks. Head dimension 1, since all volumes are proportional to it.
std::int64_t counted(SequenceStrategy strategy, const Placement& placement, int heads, std::optional<int> degree = {}) {
  const SequenceMesh mesh = make_sequence_mesh(strategy, placement, heads, degree);
  const SequenceShape shape =
      even_sequence({.num_heads = heads, .head_dim = 1}, std::int64_t{12} * placement.size(), placement.size());
  const SequenceMemory memory(mesh, shape);
  const SequenceCount count = count_sequence_programs(memory, make_sequence_programs(strategy, memory));
  EXPECT_THAT(count.into_machine, testing::Each(count.largest));
  EXPECT_THAT(count.out_of_machine, testing::Each(count.largest));
  return count.largest;
}

SequenceVolume volume(const Placement& placement, int degree, int heads) {
  return {placement.machines, placement.ranks_per_machine, degree, std::int64_t{12} * placement.size() * heads};
}

constexpr Placement kPlacements[] = {{1, 4}, {2, 1}, {2, 2}, {2, 4}, {3, 2}, {4, 1}, {4, 2}, {4, 4}, {2, 8}};

TEST(SequenceVolume, CountsWhatEquation4And6SayWhereTheRingOrTheHeadsSpanAllMachines) {
  for (const Placement& placement : kPlacements)
    for (int degree = 1; degree <= placement.size(); ++degree) {
      if (placement.size() % degree != 0) continue;
      const int heads = 2 * degree, ring = placement.size() / degree;
      SCOPED_TRACE(testing::Message() << placement.machines << " x " << placement.ranks_per_machine << ", P_u "
                                      << degree);
      if (placement.ranks_per_machine % degree == 0) {  // then P_r is a multiple of N
        EXPECT_DOUBLE_EQ(counted(SequenceStrategy::usp, placement, heads, degree),
                         usp_volume(volume(placement, degree, heads)));
      }
      if (degree % placement.machines != 0 || placement.ranks_per_machine % ring != 0) continue;
      for (const SequenceStrategy strategy :
           {SequenceStrategy::tas, SequenceStrategy::torus, SequenceStrategy::one_sided})
        EXPECT_DOUBLE_EQ(counted(strategy, placement, heads, degree),
                         stream_fusion_volume(volume(placement, degree, heads)));
    }
}

// Equation 5 lets each machine pull all heads from the ring. But its ranks have P_r / N of them, once Ulysses across
// N / P_r machines has divided the heads.
TEST(SequenceVolume, CountsARingOfFewMachinesOnceForEachHead) {
  for (const Placement& placement : kPlacements)
    for (int ring = 1; ring < placement.machines; ++ring) {
      if (placement.machines % ring != 0) continue;
      const int degree = placement.size() / ring, heads = 2 * degree;
      const double n = placement.machines, unit = 12.0 * placement.ranks_per_machine * heads;
      EXPECT_DOUBLE_EQ(counted(SequenceStrategy::usp, placement, heads, degree),
                       (2 * (ring - 1) + 4 * (1 - ring / n)) * unit);
      EXPECT_DOUBLE_EQ(usp_volume(volume(placement, degree, heads)),
                       (2 * (ring - 1) * n / ring + 4 * (1 - ring / n)) * unit);
    }
}

// Equation 7 multiplies what Ulysses sends by N / P_u. But a machine's tokens are L / N however many machines share its
// heads.
TEST(SequenceVolume, CountsUlyssesOfFewMachinesOnceForEachToken) {
  for (const Placement& placement : kPlacements)
    for (int degree = 1; degree < placement.machines; ++degree) {
      if (placement.machines % degree != 0) continue;
      const int heads = 2 * degree;
      const double n = placement.machines, unit = 12.0 * placement.ranks_per_machine * heads;
      for (const SequenceStrategy strategy :
           {SequenceStrategy::tas, SequenceStrategy::torus, SequenceStrategy::one_sided})
        EXPECT_DOUBLE_EQ(counted(strategy, placement, heads, degree),
                         (2 * (n / degree - 1) + 4.0 * (degree - 1) / degree) * unit);
      EXPECT_DOUBLE_EQ(stream_fusion_volume(volume(placement, degree, heads)),
                       (2 * (n / degree - 1) + 4.0 * (degree - 1) / degree * n / degree) * unit);
    }
}

// The paper's exception: with P_u = 2 Ulysses sends no less than Ring. By its equations and by the count it sends the
// same.
TEST(SequenceVolume, UlyssesOfDegreeTwoSendsAsMuchAsRing) {
  EXPECT_EQ(counted(SequenceStrategy::tas, {2, 1}, 2), counted(SequenceStrategy::ring, {2, 1}, 2));
  EXPECT_EQ(stream_fusion_volume({2, 1, 2, 24}), usp_volume({2, 1, 1, 24}));
}

// Where it sends more by the count: on an odd number of machines, of which one has a half of each ring.
TEST(SequenceVolume, TheGcdRuleTakesOneRingWhereTwoWouldSendMore) {
  for (const int machines : {1, 2, 3, 4, 5, 7})
    for (const int gpus : {2, 4}) {
      const Placement placement{machines, gpus};
      const std::int64_t unit = std::int64_t{12} * gpus * 2;
      const auto largest = [&](SequenceStrategy strategy, int degree) {
        const SequenceMesh mesh = make_sequence_mesh(strategy, placement, 2, degree);
        const SequenceMemory memory(mesh, even_sequence({.num_heads = 2, .head_dim = 1},
                                                        std::int64_t{12} * placement.size(), placement.size()));
        return count_sequence_programs(memory, make_sequence_programs(strategy, memory)).largest;
      };
      SCOPED_TRACE(testing::Message() << machines << " x " << gpus);
      const bool is_worse = largest(SequenceStrategy::tas, 2) > largest(SequenceStrategy::ring, 1);
      EXPECT_EQ(is_worse, machines > 1 && machines % 2 == 1);
      if (is_worse) {
        EXPECT_EQ(largest(SequenceStrategy::tas, 2), 2 * machines * unit);
        EXPECT_EQ(largest(SequenceStrategy::ring, 1), 2 * (machines - 1) * unit);
      }
      EXPECT_EQ(gcd_rule(SequenceStrategy::usp, placement, 2), 2);
      for (const SequenceStrategy strategy :
           {SequenceStrategy::tas, SequenceStrategy::torus, SequenceStrategy::one_sided})
        EXPECT_EQ(make_sequence_mesh(strategy, placement, 2).groups(), is_worse ? 1 : 2);
    }
}

TEST(SequenceVolume, SaysByHowMuchAndWhyACountDiffersFromItsEquation) {
  const auto why = [](SequenceStrategy strategy, const Placement& placement, int heads, std::int64_t tokens,
                      std::optional<int> degree = {}) {
    const SequenceMemory memory(make_sequence_mesh(strategy, placement, heads, degree),
                                even_sequence({.num_heads = heads, .head_dim = 1}, tokens, placement.size()));
    return why_counts_differ(strategy, memory,
                             count_sequence_programs(memory, make_sequence_programs(strategy, memory)));
  };
  EXPECT_EQ(why(SequenceStrategy::one_sided, {4, 2}, 8, 800), "");
  EXPECT_EQ(why(SequenceStrategy::ulysses, {2, 2}, 4, 40), "");
  EXPECT_THAT(why(SequenceStrategy::usp, {4, 1}, 2, 400, 2), HasSubstr("400 fewer than printed: equation 5"));
  EXPECT_THAT(why(SequenceStrategy::tas, {4, 1}, 2, 400, 2), HasSubstr("400 fewer than printed: equation 7"));
  EXPECT_THAT(why(SequenceStrategy::tas, {3, 2}, 4, 600, 2), HasSubstr("rings of 3 ranks straddle machines of 2"));
  EXPECT_THAT(why(SequenceStrategy::ring, {2, 2}, 4, 41), HasSubstr("41 tokens do not divide by 4 ranks"));
}

RC_GTEST_PROP(SequenceVolume, LemmaD1, ()) {
  const int m = *rc::gen::inRange(2, 40), p = m + *rc::gen::inRange(0, 200), n = p + *rc::gen::inRange(0, 2000);
  const SequenceVolume of{n, m, p, n};  // BLHD / N is 1
  const double difference = usp_volume(of) - stream_fusion_volume(of);
  const double f = 4.0 * n / p / p - (4.0 * m + 6.0 * n) / p - 2.0 * p / m + 2.0 * n + 6;
  RC_ASSERT(std::abs(difference - f) <= 1e-9 * n);
  RC_ASSERT(difference >= -1e-9 * n);
}

// With what is counted in place of equations 5 and 7 the difference is (M - 1)(2N - 4) / P_u.
TEST(SequenceVolume, TheLemmaHoldsForWhatIsCounted) {
  for (const Placement& placement : {Placement{4, 2}, {4, 4}, {8, 2}, {8, 4}, {6, 3}, {2, 2}})
    for (int degree = placement.ranks_per_machine; degree <= placement.machines; ++degree) {
      if (degree % placement.ranks_per_machine != 0 || placement.machines % degree != 0) continue;
      const double n = placement.machines, m = placement.ranks_per_machine, unit = 12.0 * m * degree;
      EXPECT_DOUBLE_EQ(static_cast<double>(counted(SequenceStrategy::usp, placement, degree, degree) -
                                           counted(SequenceStrategy::tas, placement, degree, degree)),
                       (m - 1) * (2 * n - 4) / degree * unit);
    }
}

TEST(SequenceVolume, AllStrategiesHaveTwoBarriersOfTheTeam) {
  for (const SequenceStrategy strategy : kSequenceStrategies) {
    const SequenceMesh mesh = make_sequence_mesh(strategy, {4, 2}, 8, strategy == SequenceStrategy::tas ? 2 : 4);
    const SequenceMemory memory(mesh, even_sequence({.num_heads = 8, .head_dim = 1}, 64, 8));
    EXPECT_EQ(count_sequence_programs(memory, make_sequence_programs(strategy, memory)).barriers_of_all, 2);
  }
}

TEST(SequenceMesh, IsThePapersForFluxOnFourMachines) {
  const Placement placement{4, 8};
  EXPECT_EQ(gcd_rule(SequenceStrategy::usp, placement, 24), 8);
  const SequenceMesh torus = make_sequence_mesh(SequenceStrategy::one_sided, placement, 24);
  EXPECT_EQ(torus.torus, 4);
  EXPECT_EQ(torus.ulysses, 2);
  EXPECT_EQ(torus.ring, 4);
  for (int rank = 0; rank < 32; ++rank) {
    EXPECT_EQ(torus.rank(torus.group_of(rank), torus.place_of(rank)), rank);
    EXPECT_EQ(torus.part_of(rank), placement.machine_of(rank));
  }
  const SequenceMesh usp = make_sequence_mesh(SequenceStrategy::usp, placement, 24);
  for (int rank = 0; rank < 32; ++rank) EXPECT_EQ(usp.place_of(rank) / (usp.ring / 4), placement.machine_of(rank));
}

// The paper assumes that N divides P_u and says that the torus may span a subset of the machines otherwise.
TEST(SequenceMesh, TheTorusOverlapsEveryAllToAllThatCrossesMachines) {
  const struct {
    Placement placement;
    int degree, torus;
  } cases[] = {
      {{4, 8}, 8, 4},   // the machines divide P_u
      {{4, 2}, 2, 2},   // P_u divides the machines
      {{3, 8}, 2, 2},   // no factor in common: rings of 12 end in the middle of a machine
      {{3, 8}, 4, 4},   // rings of 6; groups 0 and 1 both have ranks on the first machine
      {{3, 8}, 12, 3},  //
      {{4, 3}, 6, 6},   // rings of 2 on machines of 3
      {{2, 3}, 3, 3},   //
      {{1, 8}, 8, 1},   // one machine has nothing to overlap
  };
  for (const auto& [placement, degree, torus] : cases)
    for (const SequenceStrategy strategy : {SequenceStrategy::torus, SequenceStrategy::one_sided}) {
      SCOPED_TRACE(testing::Message() << placement.machines << " x " << placement.ranks_per_machine << ", P_u "
                                      << degree);
      const SequenceMesh mesh = make_sequence_mesh(strategy, placement, degree, degree);
      EXPECT_EQ(mesh.torus, torus);
      EXPECT_EQ(mesh.torus * mesh.ulysses, degree);
      for (int rank = 0; rank < mesh.size(); ++rank)
        for (int other = 0; other < mesh.size(); ++other)
          if (mesh.part_of(rank) == mesh.part_of(other) && mesh.place_of(rank) == mesh.place_of(other)) {
            EXPECT_TRUE(placement.share_machine(rank, other)) << rank << " and " << other;
          }
    }
}

TEST(SequenceMesh, RejectsWhatDoesNotFitAndNamesWhatWould) {
  const char* const what_fits =
      "usp, tas, torus and one_sided take a degree of 1, 2; without a degree there is also ring";
  const auto rejects = [](SequenceStrategy strategy, std::optional<int> degree, const auto& why) {
    EXPECT_THAT([&] { make_sequence_mesh(strategy, {2, 4}, 6, degree); }, testing::ThrowsMessage<InvalidArgument>(why));
  };
  rejects(SequenceStrategy::ulysses, {},
          testing::AllOf(HasSubstr("a Ulysses degree of 8 does not divide 6 heads"), HasSubstr(what_fits)));
  rejects(SequenceStrategy::usp, 3,
          testing::AllOf(HasSubstr("a Ulysses degree of 3 does not divide 8 ranks"), HasSubstr(what_fits)));
  rejects(SequenceStrategy::torus, 4, HasSubstr("a Ulysses degree of 4 does not divide 6 heads"));
  rejects(SequenceStrategy::tas, 0, HasSubstr("a Ulysses degree of 0"));
}

TEST(SequenceMesh, RejectsMachinesOfUnequalSizeAndNamesEqualOnes) {
  const int equal[] = {4, 4, 4}, unequal[] = {8, 4, 8};
  EXPECT_EQ(equal_machines(equal, 6, "test"), (Placement{3, 4}));
  EXPECT_THAT(
      [&] { equal_machines(unequal, 6, "test"); },
      testing::ThrowsMessage<InputError>(
          "test: machines of 8, 4, 8 ranks; every strategy needs as many on each: on 3 x 4 usp, tas, torus and "
          "one_sided take a degree of 1, 2, 3, 6; without a degree there is also ring; on 2 x 8 usp, tas, torus "
          "and one_sided take a degree of 1, 2; without a degree there is also ring"));
}

}  // namespace
}  // namespace heddle

// How sequence parallelism arranges the ranks of a team: a Ulysses group divides the heads, a ring divides the keys and
// values (StreamFusion, 4.2 to 4.4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/placement.h"

namespace heddle {

enum class SequenceStrategy : std::uint8_t {
  ulysses,   // all-to-all over all ranks: each computes some heads of the whole sequence
  ring,      // each computes all heads of its own queries; keys and values come from the others one by one
  usp,       // Ulysses inside a machine, Ring across (Fang & Zhao): the baseline
  tas,       // Ulysses across machines, Ring inside (4.2)
  torus,     // TAS whose all-to-alls across machines are cut into stages that overlap computation (4.3)
  one_sided  // Torus Attention with all pulls issued first and two barriers of the team a layer (4.4, Algorithm 1)
};

inline constexpr SequenceStrategy kSequenceStrategies[] = {SequenceStrategy::ulysses, SequenceStrategy::ring,
                                                           SequenceStrategy::usp,     SequenceStrategy::tas,
                                                           SequenceStrategy::torus,   SequenceStrategy::one_sided};

// "ulysses", "ring", "usp", "tas", "torus", "one_sided".
std::string_view name_of(SequenceStrategy strategy);
std::optional<SequenceStrategy> sequence_strategy_named(std::string_view name);

// The paper's P_u (4.2): the largest Ulysses degree that divides both the ranks and the heads. The exception of TAS and
// Torus Attention at P_u = 2 holds where it is real, by the count of what is sent: on an odd number of machines above 1
// the two rings share a machine, and P_u = 2 would send 2N units of BLHD / N where Ring alone, P_u = 1, sends 2(N - 1).
int gcd_rule(SequenceStrategy strategy, const Placement& placement, int num_heads);

// A team of T * U * R ranks. Each has a head group g = t * U + u in [0, T * U) and a place r in its ring of R. The
// ranks of one r are a Ulysses group; those of one g are a ring.
struct SequenceMesh {
  enum class Neighbours : std::uint8_t {
    share_a_ring,          // rank = g * R + r: TAS and Torus Attention, and Ulysses and Ring alone
    share_a_ulysses_group  // rank = r * T * U + g: USP
  };

  Placement placement;
  int torus = 1;    // T: parts of the all-to-all, of which those of other machines are overlapped
  int ulysses = 1;  // U: Ulysses degree within a part
  int ring = 1;     // R
  Neighbours neighbours = Neighbours::share_a_ring;

  int size() const { return torus * ulysses * ring; }
  int groups() const { return torus * ulysses; }  // P_u
  int rank(int group, int ring_place) const {
    return neighbours == Neighbours::share_a_ring ? group * ring + ring_place : ring_place * groups() + group;
  }
  int group_of(int rank) const { return neighbours == Neighbours::share_a_ring ? rank / ring : rank % groups(); }
  int place_of(int rank) const { return neighbours == Neighbours::share_a_ring ? rank % ring : rank / groups(); }
  int part_of(int rank) const { return group_of(rank) / ulysses; }  // t

  friend bool operator==(const SequenceMesh&, const SequenceMesh&) = default;
};

// A sentence that says why a strategy cannot run there; empty: it can. `degree` is P_u where the user asks for one;
// Ulysses and Ring have their own.
std::string why_not(SequenceStrategy strategy, const Placement& placement, int num_heads,
                    std::optional<int> degree = {});

// The Ulysses degrees that USP, TAS and Torus Attention take there, rising.
std::vector<int> ulysses_degrees(int ranks, int num_heads);

// The placement of machines with so many ranks each, 1 or more and together no more than an int holds. Throws
// InputError, which names `who`, where they differ, with what fits on all machines with the ranks of the smallest, and
// on the largest alone.
Placement equal_machines(std::span<const int> ranks, int num_heads, const char* who);

// What an error says behind why_not(): "usp, tas, torus and one_sided take a degree of 1, 2, 4; without a degree there
// is also ring".
std::string what_fits(int ranks, int num_heads);

// The strategy's mesh. Without `degree`, USP, TAS and Torus Attention take gcd_rule(). Torus Attention has the fewest
// parts, T, such that no other all-to-all crosses machines: the ranks (t, :, r) share one. That is T = machines where
// they divide P_u, as the paper assumes; P_u where it divides them, a subset of the machines each; and P_u, U = 1,
// where groups and machines end at different ranks, so some parts are beside each other on one machine. Throws
// InvalidArgument with why_not() and what_fits().
SequenceMesh make_sequence_mesh(SequenceStrategy strategy, const Placement& placement, int num_heads,
                                std::optional<int> degree = {});

}  // namespace heddle

// All-to-all among n ranks: rank r sends its block b to rank b. One block is already in place, so n - 1 blocks travel,
// one a step (StreamFusion, 4.3, "Breakdown of All-to-All Operators"). A rank can therefore compute on the blocks it
// has while the next one is on its way.
//
//   step 0       rank r's block for itself: nothing is sent; send and receive are its slots in the two buffers
//   step k > 0   to rank r + k, from rank r - k (mod n): every rank sends to a different one, so no link and no rank is
//                read or written twice in a step
//
// Traffic: a rank sends n - 1 blocks, S(n-1)/n of its S bytes. The paper's text sends from GPU i to i - k, its Torus
// Attention to t + k; this schedule follows the latter. The send buffer is ordered by receiver, the receive buffer by
// sender. The same order serves a one-hop reduce-scatter or all-gather: one peer at a time.
#pragma once

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

struct AllToAll {
  int size;  // precondition: supports(size)

  static constexpr const char* kName = "all-to-all";
  static constexpr const char* kTeams = "1 rank or more";
  static constexpr bool supports(int size) { return size >= 1; }
  constexpr int steps() const { return size; }
  constexpr int pieces() const { return size * size; }
  constexpr int traffic() const { return size - 1; }  // blocks that each rank sends

  // Precondition: 0 <= rank < size, 0 <= step < steps().
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    if (step == 0) return {.send = rank, .receive = rank};
    // No division: a remainder takes a GPU as long as a packet of a collective, which asks for each send.
    const int to = rank + step < size ? rank + step : rank + step - size;
    const int from = rank >= step ? rank - step : rank - step + size;
    return {.to = to, .from = from, .send = to, .receive = from};
  }

  // Number of the block that goes from `sender` to `receiver`.
  constexpr int block(int sender, int receiver) const { return sender * size + receiver; }

  constexpr int piece_sent(int rank, int slot) const { return block(rank, slot); }
  constexpr int piece_received(int rank, int slot) const { return block(slot, rank); }
  constexpr bool starts_with(int rank, int piece) const { return piece / size == rank; }
  constexpr bool ends_with(int rank, int piece) const { return piece % size == rank; }
};

// In step 0 nothing travels: each rank's own block is already in place.
constexpr bool begins_with_the_block_at_home(const AllToAll& s) {
  for (int rank = 0; rank < s.size; ++rank)
    if (s.at(rank, 0) != Transfer{.send = rank, .receive = rank}) return false;
  return true;
}

static_assert(AllToAll::supports(1) && !AllToAll::supports(0), "proof failed: supports");
static_assert(begins_with_the_block_at_home(AllToAll{1}) && begins_with_the_block_at_home(AllToAll{5}),
              "proof failed: begins_with_the_block_at_home");
static_assert(ProvedGather<AllToAll{1}, AllToAll{2}, AllToAll{3}, AllToAll{5}>::holds);

}  // namespace heddle::schedule

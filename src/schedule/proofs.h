// Proofs about schedules, as constexpr functions of the schedule's value. Compilers evaluate them for small teams (at
// the end of each schedule's header), tests for teams up to 64. They run the schedule on a team in lockstep. A schedule
// S provides:
//
//   size, steps(), at(rank, step)   see transfer.h
//   pieces()                        number of different pieces
//   traffic()                       the formula: pieces that each rank sends (a multicast is sent once)
//   ends_with(rank, piece)          whether that rank must hold that piece, or its sum over all ranks, at the end
//   starts_with(rank, piece)        gathering schedules only; in reducing ones every rank begins with its own
//                                   contribution to each piece
//   piece_sent(rank, slot),         which piece lies in a slot of the send buffer and of the receive buffer;
//   piece_received(rank, slot)      default: piece i in slot i
#pragma once

#include "schedule/transfer.h"

namespace heddle::schedule {

// Checks the arguments of at().
template <class S>
constexpr void require_step(const S& schedule, int rank, int step) {
  require(S::supports(schedule.size));
  require(0 <= rank && rank < schedule.size);
  require(0 <= step && step < schedule.steps());
}

// A three-dimensional array of counts, zero at first. Not <vector>: these headers also compile under nvcc.
class Counts {
 public:
  constexpr Counts(int rows, int columns, int depth = 1)
      : columns_(columns), depth_(depth), data_(new int[static_cast<unsigned>(rows * columns * depth)]{}) {}
  constexpr ~Counts() { delete[] data_; }
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  constexpr int& at(int row, int column, int layer = 0) { return data_[(row * columns_ + column) * depth_ + layer]; }

 private:
  int columns_, depth_;
  int* data_;
};

template <class S>
constexpr int piece_sent(const S& schedule, int rank, int slot) {
  if constexpr (requires { schedule.piece_sent(rank, slot); }) return schedule.piece_sent(rank, slot);
  return slot;
}

template <class S>
constexpr int piece_received(const S& schedule, int rank, int slot) {
  if constexpr (requires { schedule.piece_received(rank, slot); }) return schedule.piece_received(rank, slot);
  return slot;
}

// Whether `transfer`, a step of rank `from`, sends to `rank`.
constexpr bool reaches(const Transfer& transfer, int from, int rank) {
  return transfer.to == rank || (transfer.to == kEverybody && from != rank);
}

// If a sends pieces to b at a step, b receives exactly those from a at that step; no rank waits for a missing send.
template <class S>
constexpr bool peers_agree(const S& s) {
  for (int step = 0; step < s.steps(); ++step)
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer mine = s.at(rank, step);
      if (mine.to >= s.size || mine.to < kEverybody || mine.from >= s.size || mine.from < kNobody) return false;
      if (mine.to >= 0 && s.at(mine.to, step).from != rank) return false;
      if (mine.to == kEverybody)
        for (int peer = 0; peer < s.size; ++peer)
          if (peer != rank && s.at(peer, step).from != rank) return false;
      if (mine.from == kNobody) continue;
      const Transfer theirs = s.at(mine.from, step);
      if (!reaches(theirs, mine.from, rank) || theirs.count != mine.count || mine.count < 1) return false;
      for (int i = 0; i < mine.count; ++i)
        if (piece_sent(s, mine.from, theirs.send + i) != piece_received(s, rank, mine.receive + i)) return false;
    }
  return true;
}

// No rank is its own peer. Together with peers_agree this excludes deadlock: each wait is for a send of the same step
// by another rank.
template <class S>
constexpr bool nobody_waits_on_itself(const S& s) {
  for (int step = 0; step < s.steps(); ++step)
    for (int rank = 0; rank < s.size; ++rank)
      if (s.at(rank, step).from == rank || s.at(rank, step).to == rank) return false;
  return true;
}

// In no step does a rank receive into a slot that it sends from, so one buffer is enough.
template <class S>
constexpr bool reads_and_writes_apart(const S& s) {
  for (int step = 0; step < s.steps(); ++step)
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      if (t.to == kNobody || t.from == kNobody) continue;
      if (t.send < t.receive + t.count && t.receive < t.send + t.count) return false;
    }
  return true;
}

// Gathering schedules: a rank sends only what it had at the start or received in an earlier step.
template <class S>
constexpr bool only_sends_what_it_has(const S& s) {
  Counts held(s.size, s.pieces());
  for (int rank = 0; rank < s.size; ++rank)
    for (int piece = 0; piece < s.pieces(); ++piece) held.at(rank, piece) = s.starts_with(rank, piece);
  for (int step = 0; step < s.steps(); ++step) {
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      for (int i = 0; t.to != kNobody && i < t.count; ++i)
        if (held.at(rank, piece_sent(s, rank, t.send + i)) == 0) return false;
    }
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      for (int i = 0; t.from != kNobody && i < t.count; ++i) ++held.at(rank, piece_received(s, rank, t.receive + i));
    }
  }
  return true;
}

// Gathering schedules: a rank holds each of its final pieces from the start or receives it exactly once. It receives
// nothing else.
template <class S>
constexpr bool every_piece_arrives_once(const S& s) {
  Counts arrivals(s.size, s.pieces());
  for (int step = 0; step < s.steps(); ++step)
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      for (int i = 0; t.from != kNobody && i < t.count; ++i)
        ++arrivals.at(rank, piece_received(s, rank, t.receive + i));
    }
  for (int rank = 0; rank < s.size; ++rank)
    for (int piece = 0; piece < s.pieces(); ++piece)
      if (arrivals.at(rank, piece) != (s.ends_with(rank, piece) && !s.starts_with(rank, piece))) return false;
  return true;
}

// Reducing schedules: each final sum contains every rank's contribution exactly once.
template <class S>
constexpr bool every_contribution_arrives_once(const S& s) {
  Counts shares(s.size, s.pieces(), s.size);  // how often the contribution of rank [2] is in piece [1] at rank [0]
  Counts sent(s.size, s.pieces(), s.size);    // what a rank sent in this step, by position in the message
  for (int rank = 0; rank < s.size; ++rank)
    for (int piece = 0; piece < s.pieces(); ++piece) shares.at(rank, piece, rank) = 1;
  for (int step = 0; step < s.steps(); ++step) {
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      for (int i = 0; t.to != kNobody && i < t.count; ++i)
        for (int owner = 0; owner < s.size; ++owner)
          sent.at(rank, i, owner) = shares.at(rank, piece_sent(s, rank, t.send + i), owner);
    }
    for (int rank = 0; rank < s.size; ++rank) {
      const Transfer t = s.at(rank, step);
      for (int i = 0; t.from != kNobody && i < t.count; ++i)
        for (int owner = 0; owner < s.size; ++owner) {
          int& share = shares.at(rank, piece_received(s, rank, t.receive + i), owner);
          share = sent.at(t.from, i, owner) + (t.reduce ? share : 0);
        }
    }
  }
  for (int rank = 0; rank < s.size; ++rank)
    for (int piece = 0; piece < s.pieces(); ++piece)
      for (int owner = 0; s.ends_with(rank, piece) && owner < s.size; ++owner)
        if (shares.at(rank, piece, owner) != 1) return false;
  return true;
}

// Each rank sends as many pieces as the formula says.
template <class S>
constexpr bool traffic_is_the_formula(const S& s) {
  for (int rank = 0; rank < s.size; ++rank) {
    int sent = 0;
    for (int step = 0; step < s.steps(); ++step) {
      const Transfer t = s.at(rank, step);
      sent += t.to == kNobody ? 0 : t.count;
    }
    if (sent != s.traffic()) return false;
  }
  return true;
}

// The longest distance of a transfer in a step, in hops, where the ranks stand in a line in rank order.
template <class S>
constexpr int longest_hop(const S& s, int step) {
  int longest = 0;
  for (int rank = 0; rank < s.size; ++rank) {
    const Transfer t = s.at(rank, step);
    const int hops = t.from == kNobody ? 0 : distance(rank, t.from);
    longest = hops > longest ? hops : longest;
  }
  return longest;
}

// All proofs for some values: static_assert(ProvedGather<Ring{2}, Ring{5}>::holds). The error of a wrong schedule names
// the proof that failed and, in the line "required from", the values.
template <auto... schedules>
struct ProvedExchange {
  static_assert((peers_agree(schedules) && ...), "proof failed: peers_agree");
  static_assert((nobody_waits_on_itself(schedules) && ...), "proof failed: nobody_waits_on_itself");
  static_assert((traffic_is_the_formula(schedules) && ...), "proof failed: traffic_is_the_formula");
  static constexpr bool holds = true;
};

template <auto... schedules>
struct ProvedGather : ProvedExchange<schedules...> {
  static_assert((only_sends_what_it_has(schedules) && ...), "proof failed: only_sends_what_it_has");
  static_assert((every_piece_arrives_once(schedules) && ...), "proof failed: every_piece_arrives_once");
};

template <auto... schedules>
struct ProvedReduce : ProvedExchange<schedules...> {
  static_assert((every_contribution_arrives_once(schedules) && ...), "proof failed: every_contribution_arrives_once");
};

}  // namespace heddle::schedule

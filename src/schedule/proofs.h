// What must hold of a schedule, as functions of its value: written once, evaluated by compilers for small teams (at the
// end of each schedule's header) and by tests for teams up to 64. They play the schedule on a team whose steps are in
// lockstep. What a schedule S brings along:
//
//   size, steps(), at(rank, step)   see transfer.h
//   pieces()                        different pieces in play
//   traffic()                       the formula: pieces that each rank sends (a multicast is sent once)
//   ends_with(rank, piece)          whether that rank is to hold that piece, or its sum over all ranks, at the end
//   starts_with(rank, piece)        of gathering schedules; in reducing ones every rank begins with a share of each
//   piece piece_sent(rank, slot)          which piece lies in a slot of the buffer that is sent from,
//   piece_received(rank, slot)      and in one of the buffer that is received into; where missing: piece i in slot i
#pragma once

#include "schedule/transfer.h"

namespace heddle::schedule {

// What at() asks of its arguments.
template <class S>
constexpr void require_step(const S& schedule, int rank, int step) {
  require(S::supports(schedule.size));
  require(0 <= rank && rank < schedule.size);
  require(0 <= step && step < schedule.steps());
}

// Numbers of three dimensions, zero at first. Not <vector>: these headers are compiled everywhere, also by nvcc.
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

// Whether `transfer`, which is `from`'s, goes to `rank`.
constexpr bool reaches(const Transfer& transfer, int from, int rank) {
  return transfer.to == rank || (transfer.to == kEverybody && from != rank);
}

// If a sends pieces to b at a step, b receives just those from a at that step; and nobody waits for what nobody sends.
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

// No rank is its own peer. With peers_agree this excludes deadlock: a wait is for a send of the same step by another
// rank.
template <class S>
constexpr bool nobody_waits_on_itself(const S& s) {
  for (int step = 0; step < s.steps(); ++step)
    for (int rank = 0; rank < s.size; ++rank)
      if (s.at(rank, step).from == rank || s.at(rank, step).to == rank) return false;
  return true;
}

// In no step does a rank receive into a slot that it sends from, so one buffer will do.
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

// Gathering schedules: whatever is sent was there from the start or arrived in an earlier step.
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

// Gathering schedules: what a rank is to hold at the end it began with or received, exactly once; nothing else arrives.
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

// Reducing schedules: in each sum that a rank is to hold at the end, every rank's share is contained exactly once.
template <class S>
constexpr bool every_contribution_arrives_once(const S& s) {
  Counts shares(s.size, s.pieces(), s.size);  // how often the share of rank [2] is in piece [1] at rank [0]
  Counts sent(s.size, s.pieces(), s.size);    // what left a rank in this step, by place in the message
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

// The longest way of a transfer in a step, in hops, where the ranks stand in a line in the order of their numbers.
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

// All of it for some values: static_assert(ProvedGather<Ring{2}, Ring{5}>::holds). The error of a schedule that is
// wrong names the proof that failed and, in the line "required from", the values.
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

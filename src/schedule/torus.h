// Torus Attention (StreamFusion, 4.3): attention among N machines that overlaps its three all-to-alls (Q, KV, O).
//
// A GPU of machine t computes head part t. T(l,h) is the part of tensor T with sequence part l and head part h: Q and
// KV begin as (t,:) on machine t and are needed as (:,t); O is computed as (:,t) and belongs to machine l as (l,:). All
// indices mod N:
//
//   phase     k          computes Q with KV                 meanwhile sends              and gets
//   Pull Q    1 .. N     Q(t-k+1,t)    KV(t,t)              k < N: Q(t,t+k) to t+k       Q(t-k,t) from t-k
//                                                           k = N: KV(t,t+1) to t+1      KV(t-1,t) from t-1
//   Pull KV   1 .. N-1   Q(others,t)   KV(t-k,t)            k < N-1: KV(t,t+k+1)         KV(t-k-1,t)
//   Push O    1 .. N-1   Q(t,t)        KV(t-k,t)            O(t-k,t) to t-k              O(t,t+k) from t+k
//
// What arrives in a step is used in the next step or later. The paper has one Push O stage: its N - 1 pushes wait only
// for the end of Pull KV and may be issued at once; here each push goes with one piece of the work that hides it. Two
// indices differ from the paper's text. In Pull KV the text sends to t+k, which would send KV(t,t+1) twice and one part
// never (its own Algorithm 1, line 19, agrees with this table); in Push O it sends O(t,t), which it then says stays.
//
// Traffic: 3(N-1) messages a GPU, those of KV being double: 4(N-1)/N * S bytes, where S is the size of its Q. That is
// four all-to-alls. All N^2 pairs of Q and KV parts are computed, each once. Within a machine every GPU does the same
// on its own shard (of Ulysses or Ring Attention); it talks to the GPUs of the same index on other machines.
//
// Caller: parallel/sequence/, for Torus Attention in the sense of 4.3.
#pragma once

#include <cstdint>

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

enum class TorusPhase { kPullQ, kPullKv, kPushO };
enum class TorusTensor { kQ, kKv, kO };

// One step of one GPU: what it computes, and the transfer that overlaps it. The transfer counts slots by tensor, then
// by part (see Torus::tensor and part): parts of Q and KV are sent by receiver and received by sequence part; parts of
// O are sent by sequence part and received by head part. Where to and from are kNobody, no part travels.
struct TorusStep : Transfer {
  TorusPhase phase = TorusPhase::kPullQ;
  int query = 0;      // sequence part of Q; kEveryOther: all but the machine's own
  int key_value = 0;  // sequence part of K and V
};

// Use of() to make one.
struct Torus {
  int machines;          // N
  int gpus_per_machine;  // ranks are machine * gpus_per_machine + gpu
  int size;              // their product

  // Precondition: supports(machines, gpus_per_machine). At run time, a violation gives a torus of no GPUs.
  static constexpr Torus of(int machines, int gpus_per_machine) {
    require(supports(machines, gpus_per_machine));
    if (!supports(machines, gpus_per_machine)) return {.machines = 1, .gpus_per_machine = 1, .size = 0};
    return {machines, gpus_per_machine, machines * gpus_per_machine};
  }

  static constexpr const char* kName = "Torus Attention";
  static constexpr const char* kTeams = "1 to 256 machines of 1 to 4096 GPUs";
  static constexpr bool supports(int machines, int gpus_per_machine = 1) {
    constexpr int kMost = 1 << 12;  // of each, so that pieces() fits an int
    return machines >= 1 && gpus_per_machine >= 1 && machines <= kMost / 16 && gpus_per_machine <= kMost;
  }
  constexpr int steps() const { return 3 * machines - 2; }
  constexpr int pieces() const { return 3 * machines * machines * gpus_per_machine; }
  constexpr int traffic() const { return 3 * (machines - 1); }  // messages that each GPU sends

  constexpr int machine(int rank) const { return rank / gpus_per_machine; }
  constexpr int gpu(int rank) const { return rank % gpus_per_machine; }
  constexpr int rank(int machine, int gpu) const { return mod(machine, machines) * gpus_per_machine + gpu; }

  constexpr TorusTensor tensor(int slot) const { return static_cast<TorusTensor>(slot / machines); }
  constexpr int part(int slot) const { return slot % machines; }
  constexpr int slot(TorusTensor tensor, int part) const {
    return static_cast<int>(tensor) * machines + mod(part, machines);
  }

  // Precondition: 0 <= rank < size, 0 <= step < steps().
  constexpr TorusStep at(int rank, int step) const {
    require_step(*this, rank, step);
    const int t = machine(rank), n = machines;
    if (step < n) {
      const int k = step + 1;
      const Transfer moves = k < n   ? travel(rank, TorusTensor::kQ, k)
                             : n > 1 ? travel(rank, TorusTensor::kKv, 1)
                                     : Transfer{};
      return {moves, TorusPhase::kPullQ, mod(t - k + 1, n), t};
    }
    if (step < 2 * n - 1) {
      const int k = step - n + 1;
      const Transfer moves = k < n - 1 ? travel(rank, TorusTensor::kKv, k + 1) : Transfer{};
      return {moves, TorusPhase::kPullKv, kEveryOther, mod(t - k, n)};
    }
    const int k = step - (2 * n - 1) + 1;
    return {travel(rank, TorusTensor::kO, -k), TorusPhase::kPushO, t, mod(t - k, n)};
  }

  // For the proofs: number of tensor(sequence part, head part) on the GPUs with one index.
  constexpr int block(TorusTensor tensor, int sequence, int head, int gpu) const {
    return ((static_cast<int>(tensor) * machines + sequence) * machines + head) * gpus_per_machine + gpu;
  }
  constexpr int piece_sent(int rank, int slot) const {
    const int t = machine(rank), p = part(slot);
    return tensor(slot) == TorusTensor::kO ? block(tensor(slot), p, t, gpu(rank))
                                           : block(tensor(slot), t, p, gpu(rank));
  }
  constexpr int piece_received(int rank, int slot) const {
    const int t = machine(rank), p = part(slot);
    return tensor(slot) == TorusTensor::kO ? block(tensor(slot), t, p, gpu(rank))
                                           : block(tensor(slot), p, t, gpu(rank));
  }
  constexpr bool starts_with(int rank, int piece) const { return lies_at(rank, piece, Side::kSender); }
  constexpr bool ends_with(int rank, int piece) const { return lies_at(rank, piece, Side::kReceiver); }

 private:
  enum class Side { kSender, kReceiver };

  // Whether `rank` holds the piece before, or after, the exchange.
  constexpr bool lies_at(int rank, int piece, Side side) const {
    const int pair = piece / gpus_per_machine, sequence = pair / machines % machines, head = pair % machines;
    const bool output = pair / (machines * machines) == static_cast<int>(TorusTensor::kO);
    return piece % gpus_per_machine == gpu(rank) &&
           machine(rank) == ((side == Side::kSender) != output ? sequence : head);
  }

  // Moves the parts of one tensor whose sender is `ahead` machines behind their receiver.
  constexpr Transfer travel(int rank, TorusTensor tensor, int ahead) const {
    const int t = machine(rank);
    return {.to = this->rank(t + ahead, gpu(rank)),
            .from = this->rank(t - ahead, gpu(rank)),
            .send = slot(tensor, t + ahead),
            .receive = slot(tensor, t - ahead)};
  }
};

// Whether a step's Q covers sequence part `part`. `own` is the machine.
constexpr bool covers(const TorusStep& step, int part, int own) {
  return step.query == kEveryOther ? part != own : step.query == part;
}

// Each machine attends with every part of Q to every part of KV of its heads, exactly once.
constexpr bool every_pair_computed_once(const Torus& s) {
  for (int rank = 0; rank < s.size; ++rank) {
    Counts computed(s.machines, s.machines);
    for (int step = 0; step < s.steps(); ++step)
      for (int query = 0; query < s.machines; ++query)
        computed.at(query, s.at(rank, step).key_value) += covers(s.at(rank, step), query, s.machine(rank));
    for (int query = 0; query < s.machines; ++query)
      for (int key_value = 0; key_value < s.machines; ++key_value)
        if (computed.at(query, key_value) != 1) return false;
  }
  return true;
}

// A step computes only on parts that were there or arrived in earlier steps, and pushes only parts of O that have seen
// all of KV by then.
constexpr bool works_on_what_is_there(const Torus& s) {
  constexpr int kQ = static_cast<int>(TorusTensor::kQ), kKv = static_cast<int>(TorusTensor::kKv);
  for (int rank = 0; rank < s.size; ++rank) {
    const int own = s.machine(rank);
    Counts here(2, s.machines), seen(1, s.machines);  // by tensor; the parts of KV that a part of Q has attended to
    here.at(kQ, own) = here.at(kKv, own) = 1;
    for (int step = 0; step < s.steps(); ++step) {
      const TorusStep now = s.at(rank, step);
      if (here.at(kKv, now.key_value) == 0) return false;
      if (now.to != kNobody && s.tensor(now.send) == TorusTensor::kO && seen.at(0, s.part(now.send)) != s.machines)
        return false;
      for (int query = 0; query < s.machines; ++query) {
        if (!covers(now, query, own)) continue;
        if (here.at(kQ, query) == 0) return false;
        ++seen.at(0, query);
      }
      if (now.from != kNobody && s.tensor(now.receive) != TorusTensor::kO)
        here.at(static_cast<int>(s.tensor(now.receive)), s.part(now.receive)) = 1;
    }
  }
  return true;
}

// Bytes that a GPU sends, by the formula. `query_bytes` is the size of its Q, a multiple of `machines`.
constexpr std::int64_t torus_traffic_bytes(std::int64_t query_bytes, int machines) {
  return query_bytes / machines * 4 * (machines - 1);
}
constexpr bool bytes_are_the_formula(const Torus& s) {
  constexpr int kPartBytes = 5;
  for (int rank = 0; rank < s.size; ++rank) {
    std::int64_t bytes = 0;
    for (int step = 0; step < s.steps(); ++step) {
      const TorusStep now = s.at(rank, step);
      if (now.to != kNobody) bytes += s.tensor(now.send) == TorusTensor::kKv ? 2 * kPartBytes : kPartBytes;
    }
    if (bytes != torus_traffic_bytes(std::int64_t{kPartBytes} * s.machines, s.machines)) return false;
  }
  return true;
}

// The steps are, row by row, the table at the head of this file. The proofs above would also accept the reverse order.
constexpr bool is_the_table(const Torus& s) {
  const int n = s.machines;
  for (int rank = 0; rank < s.size; ++rank) {
    const int t = s.machine(rank), gpu = s.gpu(rank);
    const auto row = [&](int step, TorusPhase phase, int query, int key_value, TorusTensor tensor, int to, int from) {
      const TorusStep now = s.at(rank, step);
      if (now.phase != phase || now.query != query || now.key_value != mod(key_value, n)) return false;
      if (to == from) return now.to == kNobody && now.from == kNobody;  // both are t: nothing travels
      return now.to == s.rank(to, gpu) && now.from == s.rank(from, gpu) && s.tensor(now.send) == tensor &&
             s.tensor(now.receive) == tensor && s.part(now.send) == mod(to, n) && s.part(now.receive) == mod(from, n);
    };
    int step = 0;
    for (int k = 1; k < n; ++k)
      if (!row(step++, TorusPhase::kPullQ, mod(t - k + 1, n), t, TorusTensor::kQ, t + k, t - k)) return false;
    const int first = n > 1 ? 1 : 0;
    if (!row(step++, TorusPhase::kPullQ, mod(t + 1, n), t, TorusTensor::kKv, t + first, t - first)) return false;
    for (int k = 1; k < n; ++k) {
      const int ahead = k < n - 1 ? k + 1 : 0;
      if (!row(step++, TorusPhase::kPullKv, kEveryOther, t - k, TorusTensor::kKv, t + ahead, t - ahead)) return false;
    }
    for (int k = 1; k < n; ++k)
      if (!row(step++, TorusPhase::kPushO, t, t - k, TorusTensor::kO, t - k, t + k)) return false;
    if (step != s.steps()) return false;
  }
  return true;
}

static_assert(Torus::supports(1, 1) && !Torus::supports(0, 1) && !Torus::supports(1, 0), "proof failed: supports");
static_assert(bytes_are_the_formula(Torus::of(1, 1)) && bytes_are_the_formula(Torus::of(3, 2)) &&
                  bytes_are_the_formula(Torus::of(4, 1)),
              "proof failed: bytes_are_the_formula");
static_assert(is_the_table(Torus::of(1, 1)) && is_the_table(Torus::of(2, 1)) && is_the_table(Torus::of(3, 2)) &&
                  is_the_table(Torus::of(4, 1)),
              "proof failed: is_the_table");
static_assert(ProvedGather<Torus::of(1, 1), Torus::of(2, 1), Torus::of(3, 2), Torus::of(4, 1)>::holds);
static_assert(every_pair_computed_once(Torus::of(1, 1)) && every_pair_computed_once(Torus::of(4, 1)),
              "proof failed: every_pair_computed_once");
static_assert(works_on_what_is_there(Torus::of(3, 2)) && works_on_what_is_there(Torus::of(4, 1)),
              "proof failed: works_on_what_is_there");

}  // namespace heddle::schedule

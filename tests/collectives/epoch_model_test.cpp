// The epochs of low_latency.cuh as a model, tried in every order of events: when a rank ends an epoch, when a store is
// performed. Stores of one rank to different words are performed in any order; those of a clearing by the end of its
// epoch, as a kernel's end has it. A word is lost when a store meets one that nobody has read, or a clearing meets one
// that a later epoch has written; then, or when nothing can happen any more, the protocol has failed.
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "device/low_latency.cuh"

namespace heddle {
namespace {

struct Protocol {
  int ranks = 2;
  int buffers = kInboxBuffers;
  bool clears_end_with_the_kernel = true;
  bool everybody_sends = true;  // else only rank 0, as in a broadcast without tokens
  int epochs = 6;
};

constexpr int kMostModelRanks = 3, kMostBuffers = 4;
constexpr std::int8_t kNothing = -1;

// One word a pair of ranks and buffer.
struct Word {
  std::int8_t value = kNothing;          // the epoch whose data it holds
  std::int8_t on_its_way = kNothing;     // a send that has been issued
  std::int8_t being_cleared = kNothing;  // of the epoch that the issued clearing is to remove
};
struct State {
  Word words[kMostModelRanks][kMostBuffers][kMostModelRanks];  // [at][buffer][from]
  std::int8_t epochs[kMostModelRanks];                         // that each rank is in
};

class Explorer {
 public:
  explicit Explorer(const Protocol& protocol) : p_(protocol) {}

  // What went wrong first, or nothing.
  std::string run() {
    State first{};
    for (int r = 0; r < p_.ranks; ++r) begin_epoch(first, r);
    std::vector<State> open{first};
    seen_.insert(key(open.back()));
    while (!open.empty() && wrong_.empty()) {
      const State state = open.back();
      open.pop_back();
      next_.clear();
      step(state);
      if (next_.empty() && wrong_.empty() && !ended(state)) wrong_ = "nothing can happen any more: a word was lost";
      for (const State& one : next_)
        if (seen_.insert(key(one)).second) open.push_back(one);
    }
    return wrong_;
  }
  std::size_t states() const { return seen_.size(); }

 private:
  static std::string key(const State& state) {
    std::string text;
    for (const auto& at : state.words)
      for (const auto& buffer : at)
        for (const Word& word : buffer)
          for (const std::int8_t part : {word.value, word.on_its_way, word.being_cleared})
            text += static_cast<char>(part);
    for (const std::int8_t epoch : state.epochs) text += static_cast<char>(epoch);
    return text;
  }

  bool ended(const State& state) const {
    for (int r = 0; r < p_.ranks; ++r)
      if (state.epochs[r] < p_.epochs) return false;
    return true;
  }
  bool sends(int rank) const { return p_.everybody_sends || rank == 0; }
  int buffer_of(int epoch) const { return epoch % p_.buffers; }

  void step(const State& state) {
    for (int r = 0; r < p_.ranks; ++r) {
      if (state.epochs[r] < p_.epochs) end_epoch(state, r);
      for (int buffer = 0; buffer < p_.buffers; ++buffer)
        for (int from = 0; from < p_.ranks; ++from) perform(state, r, buffer, from);
    }
  }

  // All that rank r sends and clears in the epoch that it has come to: in its program one after the other, but only
  // when they are performed tells.
  void begin_epoch(State& state, int r) {
    const std::int8_t epoch = state.epochs[r];
    if (epoch == p_.epochs) return;
    for (int peer = 0; peer < p_.ranks; ++peer) {
      if (peer == r) continue;
      if (sends(r)) {
        std::int8_t& on_its_way = state.words[peer][buffer_of(epoch)][r].on_its_way;
        if (on_its_way != kNothing) fail("two words are on their way to one place");
        on_its_way = epoch;
      }
      if (sends(peer) && epoch > 0)
        state.words[r][buffer_of(epoch - 1)][peer].being_cleared = static_cast<std::int8_t>(epoch - 1);
    }
  }

  // Rank r has all words of its epoch, and goes on to the next. (When it saw each of them does not tell: a word that is
  // written or cleared too early fails, read or not.)
  void end_epoch(const State& state, int r) {
    const std::int8_t epoch = state.epochs[r];
    for (int from = 0; from < p_.ranks; ++from) {
      if (from == r || !sends(from)) continue;
      const std::int8_t value = state.words[r][buffer_of(epoch)][from].value;
      if (value == kNothing) return;
      if (value != epoch) return fail("a word of another epoch is taken for this one's");
      if (p_.clears_end_with_the_kernel && epoch > 0 &&
          state.words[r][buffer_of(epoch - 1)][from].being_cleared != kNothing)
        return;
    }
    State next = state;
    ++next.epochs[r];
    begin_epoch(next, r);
    next_.push_back(next);
  }

  // The stores to one word, each when it likes.
  void perform(const State& state, int at, int buffer, int from) {
    const Word& word = state.words[at][buffer][from];
    if (word.on_its_way != kNothing) {
      State next = state;
      Word& changed = next.words[at][buffer][from];
      if (word.value != kNothing) fail("a word is written over another that was not cleared");
      changed.value = word.on_its_way;
      changed.on_its_way = kNothing;
      next_.push_back(next);
    }
    if (word.being_cleared != kNothing) {
      State next = state;
      Word& changed = next.words[at][buffer][from];
      if (word.value > word.being_cleared) fail("a word is cleared that a later epoch has written");
      changed.value = kNothing;
      changed.being_cleared = kNothing;
      next_.push_back(next);
    }
  }

  void fail(const char* what) {
    if (wrong_.empty()) wrong_ = what;
  }

  Protocol p_;
  std::unordered_set<std::string> seen_;
  std::vector<State> next_;
  std::string wrong_;
};

TEST(EpochModel, ThreeBuffersLoseNothingInAnyOrderOfEvents) {
  for (const Protocol& protocol : {Protocol{.ranks = 2, .epochs = 12}, Protocol{.ranks = 3, .epochs = 5}}) {
    Explorer explorer(protocol);
    EXPECT_EQ(explorer.run(), "") << protocol.ranks << " ranks";
    EXPECT_GT(explorer.states(), 100U);  // it has tried something
  }
}

TEST(EpochModel, TwoBuffersLoseAWord) {
  EXPECT_NE(Explorer({.buffers = 2}).run(), "");
}

TEST(EpochModel, ThreeBuffersRestOnTheEndOfAKernel) {
  EXPECT_NE(Explorer({.clears_end_with_the_kernel = false}).run(), "");
}

TEST(EpochModel, ThreeBuffersRestOnHearingFromAllInEveryEpoch) {
  EXPECT_NE(Explorer({.everybody_sends = false}).run(), "");
}

}  // namespace
}  // namespace heddle

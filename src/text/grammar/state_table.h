// The states of a matcher, determinised as they are met: a state is the set of configurations in which a push-down
// automaton may be after the bytes so far.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "text/grammar/automaton.h"

namespace heddle::grammar {

// Not thread-safe. It grows with the states that are met; its user starts another one when it is full().
class StateTable {
 public:
  using Id = std::int32_t;
  static constexpr Id kDead = -1;

  explicit StateTable(std::shared_ptr<const Automaton> automaton);

  // Never kDead.
  Id start() const { return start_; }

  // kDead: no text that begins so can match. Throws Failure when too many configurations are alive together.
  Id next(Id state, std::uint8_t byte);

  bool accepting(Id state) const { return states_[static_cast<std::size_t>(state)].accepting; }

  // Whether any byte may follow.
  bool continues(Id state) const { return !states_[static_cast<std::size_t>(state)].configurations.empty(); }

  // A state in which the same texts of at most `max_bytes` bytes may follow: repetitions that can neither end nor run
  // out so soon have one representative. So the masks of long strings and lists are few.
  Id representative(Id state, std::int32_t max_bytes);

  // The same state in this table.
  Id import(const StateTable& other, Id state);

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  std::size_t num_states() const { return states_.size(); }
  bool full() const;

 private:
  // A rule that has been called, and where it returns to. Each distinct one exists once, so that indices are identities.
  struct Frame {
    std::int32_t edge = 0;    // of the automaton
    std::int32_t count = 0;   // repetitions before this one
    std::int32_t parent = 0;  // frame; 0: none
    std::int32_t depth = 0;
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    std::size_t operator()(const Frame& frame) const;
  };

  struct Configuration {
    StateId state = 0;
    std::int32_t frame = 0;
    bool operator==(const Configuration&) const = default;
    bool operator<(const Configuration& other) const {
      return state != other.state ? state < other.state : frame < other.frame;
    }
  };
  using Configurations = std::vector<Configuration>;  // in ascending order; those with edges of bytes only
  struct State {
    Configurations configurations;
    bool accepting = false;
    std::unique_ptr<std::array<Id, 256>> row;  // of next; kUnknown: not computed yet
  };
  static constexpr Id kUnknown = -2;

  std::int32_t frame(const Frame& frame);
  Id intern(Configurations configurations, bool accepting);
  // Follows all edges without bytes from `open`, and takes the state of what is reached.
  Id close(Configurations open);
  void follow(const Configuration& from, Configurations& open);
  void finish_rule(std::int32_t frame_idx, Configurations& open);
  void enter(const Edge& edge, std::int32_t count, std::int32_t parent, Configurations& open);
  std::int32_t clamped_frame(std::int32_t frame_idx, std::int32_t max_bytes);

  std::shared_ptr<const Automaton> automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, std::int32_t, FrameHash> frame_indices_;
  std::vector<State> states_;
  std::unordered_multimap<std::size_t, Id> state_ids_;  // by hash
  std::size_t bytes_ = 0;
  Id start_ = 0;
};

}  // namespace heddle::grammar

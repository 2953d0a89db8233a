// The oracle: the same programs with every word on its way, cycle by cycle, for meshes to 32 x 32. Slow and plain.
//
// A channel is a colour on a fixed path of neighbouring cores. A link takes one word a cycle and direction, for whichever
// of its channels comes first in turn; a word needs alpha cycles a link, a message ramps once. Each router on the path has
// a queue for the channel, and when the next one is full the word stays: so a core that is not ready holds up what lies
// behind it. A multicast's word goes on when the core it passes has taken it. A core takes a word a cycle from each
// neighbour.
//
// A core takes its steps one after the other: it begins when the tiles of the step are there and its buffers are free,
// sends, computes, and passes sums on. Where wafer_cost.h charges a stage beta, that is the time between a word's arrival
// and its departure with something added. alpha, beta and ramps are whole cycles here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "fabric/mesh/core_budget.h"
#include "fabric/mesh/mesh.h"

namespace heddle::mesh {

class EventMesh {
 public:
  // Throws InvalidArgument on more than 32 x 32 cores.
  EventMesh(const PlmrDevice& device, const Grid& grid, WaferSync sync = WaferSync::dataflow);

  const Grid& grid() const { return grid_; }
  void phase(std::string_view name) { budget_.phase(name); }
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers) {
    return budget_.allocate(name, rows, columns, buffers);
  }
  void release(Tile tile) { budget_.release(tile); }

  template <class Body>
  void repeat(int steps, Body&& body) {
    close_step();
    for (int step = 0; step < steps; ++step) {
      body(step);
      close_step();
    }
  }

  void skew(std::initializer_list<TileAxis> tiles);
  void shift(Tile tile, Axis axis);
  void broadcast(Tile from, Tile into, Axis axis, Root root);
  void reduce(Tile from, Tile into, Axis axis, Root root);
  void gather(Tile from, std::span<const Tile> all, Axis axis);
  void exchange(Tile from, Tile into, Axis axis, std::span<const RowMove> moves);
  void all_reduce(Tile tile, Axis axis, Reduction reduction, const AllReduceOptions& options);
  void clear(Tile) {}
  void multiply_add(Tile a, Tile b, Tile c, Operand operand);
  void multiply_vector(Tile x, Tile b, Tile y);

  // Runs the whole program, once; the cycle in which the last core is done. Throws Failure when it does not end.
  std::int64_t cycles();

 private:
  enum class When : std::uint8_t { begins, has_computed };  // what a sender must have done in a message's step
  enum class Follows : std::uint8_t { word_by_word, whole };
  struct Message {
    int channel = 0, step = 0, words = 0;
    When when = When::begins;
    int delay = 0, ramp = 0;
    std::vector<int> parents;  // messages to the sender, which this one passes on
    Follows follows = Follows::word_by_word;
    When accepted = When::begins;                  // what a receiver must have done before it takes the words
    std::vector<int> needs_received, accept_sent;  // other messages, before it leaves and before it is taken
    std::vector<int> all_begun;                    // cores, before it leaves
    int due = 0;                                   // the step that a barrier ends with it

    int injected = 0;
    std::vector<std::int64_t> arrivals;  // of words at the path's end
    std::vector<int> taken;              // words, by the core's index in the path
    int copies_left = 0;                 // words still to be taken, at all cores that take them
  };
  struct Word {
    int message;
    std::int64_t at;
  };
  struct Channel {
    std::vector<int> path;  // cores
    bool multicast = false;
    std::vector<std::deque<Word>> queues;
    std::deque<int> messages;
  };
  struct Receipt {
    int message;
    std::size_t place;  // of the core in its path
  };
  struct CoreStep {
    std::vector<Receipt> begin_received, compute_received;
    std::vector<int> begin_sent, compute_sent;
  };
  struct Step {
    std::int64_t compute = 0, compute_delay = 0;
    std::vector<CoreStep> cores;
  };
  enum class State : std::uint8_t { between_steps, begun, computing };
  struct Core {
    int step = 0;
    State state = State::between_steps;
    std::int64_t until = 0;
    std::vector<std::int64_t> begun, computed;  // by step
  };

  // Building.
  Step& step(int index);
  void close_step();
  int words_of(Tile tile, Axis axis) const;
  int core_at(Axis axis, int line, int core) const;           // of the physical mesh
  int core_in_ring(Axis axis, int line, int position) const;  // both by their places in the rings
  std::vector<int> straight(int from, int to) const;
  int add_message(const std::vector<int>& path, Message message, bool is_multicast = false);
  void shift_line(Axis axis, int line, int words);
  // From the line's core number `from` to all others; says which messages that takes.
  std::vector<int> multicast(Axis axis, int line, int from, const Message& message);
  void await_multicast(int message);  // in the next step, all who get it
  void k_tree(Axis axis, int line, int values, int phases);
  void pipeline(Axis axis, int line, int values);
  void ring(Axis axis, int line, int words);

  // Running.
  bool is_received(const Receipt& receipt) const;
  bool is_everywhere(int message) const { return messages_[static_cast<std::size_t>(message)].copies_left == 0; }
  bool is_sent(int message) const;
  bool has(const Core& core, When when, int step) const;
  bool use_link(int from, int to);
  bool may_begin(int core) const;
  bool may_compute(int core) const;
  void advance_core(int core);
  void advance_channel(Channel& channel);
  bool may_inject(const Message& message, int source) const;
  bool accepts(const Message& message, int core) const;

  Grid grid_;
  WaferSync sync_;
  CoreBudget budget_;
  int alpha_, beta_, ramp_;
  double link_bytes_, call_cycles_, mac_cycles_, vector_slice_cycles_;

  std::vector<Step> steps_;
  int current_ = 0;    // the step that is being written
  bool open_ = false;  // something has been
  double compute_ = 0;
  std::vector<Message> messages_;
  std::vector<Channel> channels_;
  std::map<std::vector<int>, int> channel_of_;  // path, and a last element that tells multicasts apart
  struct LastShift {
    int step;
    std::vector<int> messages;  // by their senders' ring positions
  };
  std::map<std::pair<Axis, int>, LastShift> last_shift_;  // by line

  std::int64_t now_ = 0;
  std::vector<Core> cores_;
  std::map<std::pair<int, int>, std::int64_t> link_used_;
  std::vector<int> due_left_, computing_left_;  // by step: messages that a barrier awaits, cores that compute
  int finished_steps_ = 0, left_ = 0;           // left_: messages
  std::size_t turn_ = 0;
};

}  // namespace heddle::mesh

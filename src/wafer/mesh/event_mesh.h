// The oracle: simulates the same programs word by word and cycle by cycle, for meshes up to 32 x 32. Slow and simple.
//
// A channel is a colour on a fixed path of neighbouring cores. A link carries one word a cycle and direction; its
// channels share it round robin. A word needs alpha cycles a link; a message pays its ramp once. Each router on the
// path has a queue per channel. A word stays while the next queue is full, so a core that is not ready blocks what lies
// behind it. A word of a multicast goes on when the core it passes has taken it. A core takes a word a cycle from each
// neighbour.
//
// A word carries values (event_values.h): they are read when it leaves, added when it is passed on, written when it is
// taken. The results of a program therefore depend on the order in which words really arrived.
//
// A core executes its steps in order: it begins when the tiles of the step have arrived and its buffers are free, then
// sends, computes and passes sums on. The stage beta that wafer_cost.h charges is here the time between the arrival of
// a word and its departure with a value added. alpha, beta and ramps are whole cycles here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "wafer/mesh/bit_set.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/event_values.h"
#include "wafer/mesh/mesh.h"
#include "wafer/mesh/tile_move.h"

namespace heddle::mesh {

class EventMesh {
 public:
  // Throws InvalidArgument on more than 32 x 32 cores.
  EventMesh(const PlmrDevice& device, const Grid& grid, WaferSync sync = WaferSync::dataflow);

  const Grid& grid() const { return grid_; }
  const CoreBudget& budget() const { return budget_; }
  void phase(std::string_view name) { budget_.phase(name); }
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers) {
    const Tile tile = budget_.allocate(name, rows, columns, buffers);
    values_->allocate(tile);
    return tile;
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
  void clear(Tile tile);
  void multiply_add(Tile a, Tile b, Tile c, Operand operand);
  void multiply_vector(Tile x, Tile b, Tile y);

  // As LoadMesh has them: all cores begin at once, and what follows begins when the last one is done. Words of different
  // paths share a link in the order in which their first words arrive. Only for tiles of one buffer.
  void work(double cycles, const std::function<void(int core)>& values);
  void transfer(std::int64_t count, Access access, Arrival arrival, const std::function<TileMove(std::int64_t)>& move);

  // Runs the program since the last call. Returns the cycle, since the beginning, in which the last core is done. Throws
  // Failure if it does not end.
  std::int64_t cycles();

  // Element (r, c) of place (i, j): its input before any operation; its result after cycles().
  float& value(Tile tile, int i, int j, int r, int c) { return values_->at(tile, i, j, r, c); }

 private:
  enum class When : std::uint8_t { begins, has_computed };  // what a sender must have done in a message's step
  enum class Follows : std::uint8_t { word_by_word, whole };
  struct Message {
    int channel = 0, step = 0, words = 0;
    When when = When::begins;
    int delay = 0, ramp = 0;
    std::vector<int> parents;  // messages to the sender that this one passes on
    Follows follows = Follows::word_by_word;
    When accepted = When::begins;  // what a receiver must have done before it accepts words
    // Other messages: those that must have arrived before this one leaves, those that must have left before it is
    // accepted.
    std::vector<int> needs_received, accept_sent;
    std::vector<int> all_begun;  // cores that must have begun before it leaves
    int due = 0;                 // the step whose barrier waits for it
    // Relays (event_transfers.cpp): the message that waits for this one's first word to queue for its link; the request,
    // on its last way, that this one answers.
    int next = -1, request = -1;
    Payload payload = {};

    std::vector<float> carried;  // values of words that have left
    int injected = 0;
    std::vector<std::int64_t> arrivals;  // of words at the end of the path
    std::vector<int> taken;              // words, by index of the core in the path
    int copies_left = 0;                 // words still to be taken, summed over all cores that take them
  };
  struct Word {
    int message;
    std::int64_t at;
  };
  // First in, first out. Takes no memory before its first word, as most queues of a program are for few words or none.
  class WordQueue {
   public:
    bool empty() const { return first_ == words_.size(); }
    std::size_t size() const { return words_.size() - first_; }
    const Word& front() const { return words_[first_]; }
    void push_back(Word word) { words_.push_back(word); }
    void pop_front() {
      if (++first_ != words_.size()) return;
      words_.clear();
      first_ = 0;
    }

   private:
    std::vector<Word> words_;
    std::size_t first_ = 0;
  };
  struct Channel {
    std::vector<int> path;  // cores
    bool multicast = false;
    std::vector<WordQueue> queues;
    int num_words = 0;         // in the queues
    std::deque<int> messages;  // not yet sent
  };
  struct Receipt {
    int message;
    std::size_t place;  // of the core in the channel's path
  };
  struct CoreStep {
    std::vector<Receipt> begin_received, compute_received;
    std::vector<int> begin_sent, compute_sent;
    std::vector<std::function<void()>> as_begun;  // what the core does with its values when it begins
  };
  struct Step {
    std::int64_t compute = 0, compute_delay = 0;
    std::vector<std::function<void(int core)>> as_computed;
    std::vector<CoreStep> cores;
  };
  enum class State : std::uint8_t { between_steps, begun, computing };
  struct Core {
    int step = 0;
    State state = State::between_steps;
    std::int64_t until = 0;
    std::vector<std::int64_t> begun, computed;  // by step
  };

  // Building the program.
  Step& step(int index);
  void close_step();
  int words_of(Tile tile, Axis axis) const;
  int core_at(Axis axis, int line, int core) const;           // in the physical mesh
  int core_in_ring(Axis axis, int line, int position) const;  // line and position are ring positions
  int position_of(Axis axis, int core) const;                 // ring position of the core with that number in the line
  int along(Axis axis, int core) const { return axis == Axis::x ? core % grid_.cores.width : core / grid_.cores.width; }
  std::vector<int> straight(int from, int to) const;
  int add_message(const std::vector<int>& path, Message message, bool is_multicast = false);
  // A message relayed by every core of the path. It leaves after `request`, unless that is negative. Returns the last
  // way's message; -1 where the path has one core.
  int relay(const std::vector<int>& path, int words, const Payload& payload, int request);
  // Moves the tiles of a core line, at the places `movers` across the axis, by one place of the ring: to the previous
  // place for direction 1, to the next for -1.
  void shift_line(Tile tile, Axis axis, int line, int direction, const std::vector<int>& movers);
  // From core `from` of the line to all others. Returns the messages.
  std::vector<int> multicast(Axis axis, int line, int from, const Message& message);
  void await_multicast(int message);  // all receivers wait for it in the next step
  void for_places(int core, const std::function<void(int i, int j)>& work) const;

  // One line of an all-reduce: the tiles of its cores, by number in the line, and the destination of the result.
  struct ReducedLine {
    Axis axis;
    int line, values;
    std::function<float(int core, int value)> own;
    std::function<void(int core, int value, float)> write;
    Reduction reduction;
  };
  Payload summand(const ReducedLine& line, int core, int values_a_word = 1) const;
  Payload result(const ReducedLine& line, int core, int values_a_word) const;  // what the core sends to all
  void send_to_all(const ReducedLine& line, int root, const Message& message);
  void k_tree(const ReducedLine& line, int phases);
  void pipeline(const ReducedLine& line);
  void ring(const ReducedLine& line);

  // Running the program.
  bool is_received(const Receipt& receipt) const;
  bool is_everywhere(int message) const { return messages_[static_cast<std::size_t>(message)].copies_left == 0; }
  bool is_sent(int message) const;
  bool has(const Core& core, When when, int step) const;
  bool use_link(int from, int to);
  bool may_begin(int core) const;
  bool may_compute(int core) const;
  bool advance_core(int core);  // whether it is done with the program
  void forget_program();
  void advance_channel(std::size_t index);
  void enqueue(int message);  // at its channel
  bool may_inject(const Message& message, int source) const;
  void load_word(Message& message);
  static void take_word(Message& message, std::size_t path_index);
  bool accepts(const Message& message, int core) const;

  Grid grid_;
  WaferSync sync_;
  CoreBudget budget_;
  int alpha_, beta_, ramp_;
  int values_a_word_;
  std::unique_ptr<EventValues> values_;  // on the heap: closures of messages and steps hold its address
  double link_bytes_, call_cycles_, mac_cycles_, vector_slice_cycles_;

  std::vector<Step> steps_;
  int current_ = 0;    // the step under construction
  bool open_ = false;  // whether that step has content
  double compute_ = 0;
  std::vector<Message> messages_;
  std::vector<Channel> channels_;
  BitSet busy_;                                 // channels with words or messages
  std::map<std::vector<int>, int> channel_of_;  // key: the path, and a last element that tells multicasts apart
  struct LastShift {
    int step = -2;
    std::vector<int> messages;  // by ring position of the sender
  };
  std::map<std::tuple<Axis, int, int>, LastShift> last_shift_;  // by line and direction

  std::int64_t now_ = 0, elapsed_ = 0;  // elapsed_: by programs that have run
  std::vector<Core> cores_;
  std::vector<std::int64_t> link_used_;         // by core and direction: the last cycle
  std::vector<int> due_left_, computing_left_;  // by step: messages that a barrier waits for; cores that compute
  int finished_steps_ = 0, left_ = 0;           // left_: messages not yet delivered
  std::size_t turn_ = 0;
};

}  // namespace heddle::mesh

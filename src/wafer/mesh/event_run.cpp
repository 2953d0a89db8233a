// Runs the oracle: cores and channels, cycle by cycle. event_mesh.cpp builds their work.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "wafer/mesh/event_mesh.h"

namespace heddle::mesh {
namespace {

constexpr std::int64_t kLongestRun = 4'000'000;
constexpr int kQueueWords = 4;  // per router, beside the words on the incoming link

std::size_t slot(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

bool EventMesh::is_received(const Receipt& receipt) const {
  const Message& message = messages_[slot(receipt.message)];
  return message.taken[receipt.place] == message.words;
}

bool EventMesh::is_sent(int message) const {
  return messages_[slot(message)].injected == messages_[slot(message)].words;
}

bool EventMesh::has(const Core& core, When when, int step) const {
  return (when == When::begins ? core.begun : core.computed)[slot(step)] >= 0;
}

bool EventMesh::may_begin(int core) const {
  const int index = cores_[slot(core)].step;
  if (sync_ == WaferSync::barrier && finished_steps_ < index) return false;
  const CoreStep& s = steps_[slot(index)].cores[slot(core)];
  return std::ranges::all_of(s.begin_received, [&](const Receipt& r) { return is_received(r); }) &&
         std::ranges::all_of(s.begin_sent, [&](int m) { return is_sent(m); });
}

bool EventMesh::may_compute(int core) const {
  const CoreStep& s = steps_[slot(cores_[slot(core)].step)].cores[slot(core)];
  return std::ranges::all_of(s.compute_received, [&](const Receipt& r) { return is_received(r); }) &&
         std::ranges::all_of(s.compute_sent, [&](int m) { return is_sent(m); });
}

bool EventMesh::advance_core(int index) {
  Core& core = cores_[slot(index)];
  while (core.step < static_cast<int>(steps_.size())) {
    const Step& s = steps_[slot(core.step)];
    switch (core.state) {
      case State::between_steps:
        if (!may_begin(index)) return false;
        core.begun[slot(core.step)] = now_;
        for (const auto& work : s.cores[slot(index)].as_begun) work();
        core.state = State::begun;
        break;
      case State::begun:
        if (!may_compute(index)) return false;
        core.until = now_ + s.compute_delay + s.compute;
        core.state = State::computing;
        break;
      case State::computing:
        if (now_ < core.until) return false;
        for (const auto& work : s.as_computed) work(index);
        core.computed[slot(core.step)] = now_;
        --computing_left_[slot(core.step++)];
        core.state = State::between_steps;
        break;
    }
  }
  return true;
}

bool EventMesh::accepts(const Message& message, int core) const {
  return has(cores_[slot(core)], message.accepted, message.step) &&
         std::ranges::all_of(message.accept_sent, [&](int m) { return is_sent(m); });
}

bool EventMesh::may_inject(const Message& message, int source) const {
  const Core& core = cores_[slot(source)];
  if (!has(core, message.when, message.step)) return false;
  const auto& since = message.when == When::begins ? core.begun : core.computed;
  if (since[slot(message.step)] + message.delay > now_) return false;
  for (const int other : message.all_begun)
    if (!has(cores_[slot(other)], When::begins, message.step)) return false;
  for (const int needed : message.needs_received)
    if (!is_everywhere(needed)) return false;
  if (message.request >= 0 && messages_[slot(message.request)].arrivals.back() + message.delay > now_) return false;
  for (const int parent : message.parents) {
    const Message& p = messages_[slot(parent)];
    const bool by_word = message.follows == Follows::word_by_word;
    const int word = by_word ? message.injected : p.words - 1;
    if (static_cast<int>(p.arrivals.size()) <= word) return false;
    if (p.arrivals[slot(word)] + message.delay + (by_word ? 0 : 1) > now_) return false;
  }
  return true;
}

bool EventMesh::use_link(int from, int to) {
  const int direction = to == from + 1 ? 0 : to == from - 1 ? 1 : to > from ? 2 : 3;
  std::int64_t& used = link_used_[slot(4 * from + direction)];
  if (used == now_) return false;
  used = now_;
  return true;
}

void EventMesh::load_word(Message& message) {
  const Payload& payload = message.payload;
  const int first = message.injected * payload.values_a_word;
  for (int value = first; value < first + payload.values_a_word; ++value) {
    std::optional<float> x;
    if (payload.own) x = payload.own(value);
    for (const int parent : message.parents) {
      const float passed_on = messages_[slot(parent)].carried[slot(value)];
      x = !x ? passed_on : payload.reduction == Reduction::sum ? *x + passed_on : std::max(*x, passed_on);
    }
    message.carried[slot(value)] = x.value_or(0);
    if (payload.sent) payload.sent(value, message.carried[slot(value)]);
  }
}

void EventMesh::take_word(Message& message, std::size_t path_index) {
  const Payload& payload = message.payload;
  const int first = message.taken[path_index]++ * payload.values_a_word;
  for (int value = first; payload.arrive && value < first + payload.values_a_word; ++value)
    payload.arrive(static_cast<int>(path_index), value, message.carried[slot(value)]);
}

void EventMesh::enqueue(int message) {
  const std::size_t channel = slot(messages_[slot(message)].channel);
  channels_[channel].messages.push_back(message);
  busy_.insert(channel);
}

void EventMesh::advance_channel(std::size_t index) {
  Channel& channel = channels_[index];
  const std::vector<int>& path = channel.path;
  const std::size_t last = path.size() - 1;
  const std::size_t room = slot(kQueueWords + alpha_ + ramp_);
  for (std::size_t k = last; k > 0; --k) {
    WordQueue& queue = channel.queues[k];
    if (queue.empty() || queue.front().at > now_) continue;
    const Word word = queue.front();
    Message& message = messages_[slot(word.message)];
    const bool takes = k == last || channel.multicast;
    if (takes && !accepts(message, path[k])) continue;
    if (k < last && (channel.queues[k + 1].size() >= room || !use_link(path[k], path[k + 1]))) continue;
    queue.pop_front();
    if (k < last) channel.queues[k + 1].push_back({word.message, now_ + alpha_});
    if (k == last) {
      --channel.num_words;
      message.arrivals.push_back(now_);
      if (message.next >= 0 && message.arrivals.size() == 1) enqueue(message.next);
    }
    if (takes) take_word(message, k);
    if (takes && --message.copies_left == 0) {
      --due_left_[slot(message.due)];
      --left_;
    }
  }
  while (!channel.messages.empty() && is_sent(channel.messages.front())) channel.messages.pop_front();
  if (channel.messages.empty() && channel.num_words == 0) busy_.erase(index);
  if (channel.messages.empty() || channel.queues[1].size() >= room) return;
  const int id = channel.messages.front();
  Message& message = messages_[slot(id)];
  if (!may_inject(message, path[0]) || !use_link(path[0], path[1])) return;
  load_word(message);
  channel.queues[1].push_back({id, now_ + alpha_ + message.ramp});
  ++channel.num_words;
  ++message.injected;
}

std::int64_t EventMesh::cycles() {
  close_step();
  const int cores = grid_.cores.width * grid_.cores.height, steps = static_cast<int>(steps_.size());
  now_ = 0;
  link_used_.assign(slot(4 * cores), -1);
  cores_.assign(slot(cores), {.begun = std::vector<std::int64_t>(slot(steps), -1),
                              .computed = std::vector<std::int64_t>(slot(steps), -1)});
  computing_left_.assign(slot(steps), cores);
  due_left_.assign(slot(steps) + 2, 0);
  left_ = static_cast<int>(messages_.size());
  for (Message& message : messages_) {
    ++due_left_[slot(message.due)];
    // The last word of a vector may be half empty; a message that passes it on may count the missing half.
    message.carried.assign(slot(message.words * message.payload.values_a_word + 1), 0);
  }
  std::vector<int> unfinished(slot(cores));
  std::iota(unfinished.begin(), unfinished.end(), 0);
  for (;; ++now_) {
    for (int before = -1; before != finished_steps_;) {  // again after a barrier has opened
      before = finished_steps_;
      std::erase_if(unfinished, [&](int core) { return advance_core(core); });
      while (finished_steps_ < steps && computing_left_[slot(finished_steps_)] == 0 &&
             due_left_[slot(finished_steps_)] == 0)
        ++finished_steps_;
    }
    if (left_ == 0 && unfinished.empty()) break;
    if (now_ >= kLongestRun)
      throw_error<Failure>("no end of the program after {} cycles, {} messages left", now_, left_);
    const std::size_t all = channels_.size();
    turn_ = (turn_ + 1) % std::max<std::size_t>(all, 1);
    for (std::size_t i = busy_.next(turn_, all); i < all; i = busy_.next(i + 1, all)) advance_channel(i);
    for (std::size_t i = busy_.next(0, turn_); i < turn_; i = busy_.next(i + 1, turn_)) advance_channel(i);
  }
  elapsed_ += now_;
  forget_program();
  return elapsed_;
}

// What follows finds values alone.
void EventMesh::forget_program() {
  steps_.clear();
  messages_.clear();
  channels_.clear();
  busy_.clear();
  channel_of_.clear();
  last_shift_.clear();
  current_ = 0;
  finished_steps_ = 0;
}

}  // namespace heddle::mesh

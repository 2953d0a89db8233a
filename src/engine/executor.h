// Carries out steps on one device: owns the model, its key-value cache, the arena, the stream and the lane.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/graph.h"
#include "base/lane.h"
#include "base/thread_pool.h"
#include "device/wait_watch.h"
#include "engine/host_memory.h"
#include "engine/kv_cache.h"
#include "engine/step_memory.h"
#include "kernels/sampling/sample.h"
#include "models/model.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

// What is to become of a step's logits.
enum class Outcome : std::uint8_t {
  none,    // nothing: they stay on the device, for fetch_logits
  logits,  // they come to the host
  tokens,  // the device chooses a token for each sample, by the sample's own parameters
};

// Of one step, valid until the next but one starts.
struct StepResult {
  Tensor logits;                         // [samples.size(), vocab_size], Outcome::logits: in the host's memory
  std::span<const std::int32_t> tokens;  // Outcome::tokens: of each sample, or kUnsoundRow (kernels/sampling/argmax.h)
};

// For each sample of a plan its prompt's and text's tokens, each once; needed only of those with penalties, and may be
// empty as a whole where none has any.
using Histories = std::span<const std::span<const HistoryToken>>;

// Runs where the model's weights lie. On a GPU a step's arrays go there in one copy and its tokens or logits come back.
// Steps that decode are prepared as graphs there, one for each of few sizes: in between, sequences that nobody asked
// for fill the step up.
//
// A step may start while the one before it still runs, and take tokens that that one chooses: then the device goes from
// one step to the next without waiting for the host.
//
// A kernel cannot throw: where a wait inside one passes its deadline, it fills a WaitRecord and the step goes on with
// whatever lies in memory. Such a step is poisoned. finish() looks at the records before it hands out tokens or logits,
// throws Timeout, and no step may start any more: what the step left in the cache, in scratch and on other ranks is not
// known, so only a new executor is sound.
class Executor {
 public:
  static constexpr int kMostInFlight = 2;

  // `threads`: of the CPU. Throws Failure when memory is short, InvalidArgument when the device has fewer SMs than
  // limits.num_sms.
  Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();  // waits for steps that are under way

  const Model& model() const { return *model_; }
  Device device() const { return model_->device(); }
  const KvPages& kv_pages() const { return cache_.pages(); }  // on a GPU with spare pages behind limits.num_pages
  Stream& stream() { return stream_; }
  const Lane& lane() const { return lane_; }  // of every operator of every step in one part

  // Decides which parts a step has (StepPlan::prefix_tokens), as ExecutorLimits::split says. For rank 0 alone: the others
  // take its plans as they are.
  void choose_parts(StepPlan& plan) const;
  const LayerTiles& tiles() const { return tiles_; }  // empty where no step is in two parts

  // Steps are poisoned by this record, too, which must outlive the executor: that of a fabric over which they reach
  // other ranks. The stream's own record is watched from the start.
  void watch(const WaitLimit& waits) { watch_.add(waits); }

  // Runs steps of all sizes that are prepared for, and the largest of each other kind, and waits for them: what happens
  // only the first time a kernel runs has then happened. Their results are of no use, and the cache must be of none yet.
  // On a GPU only; before the first step. Throws as start() and finish().
  void warm_up();

  // Ranks that share a GPU must neither instantiate a graph nor load a kernel while another's kernel waits for them
  // (fabric/nvlink/README.md). So they call `meet` before a graph's first launch, and before the first step of a size
  // that no graph is for, which they have computed once with `alone` set, under which nothing crosses ranks: what such a
  // step leaves in the cache, the step itself writes again. `meet` returns when every rank has called it.
  void share_gpu(std::function<void()> meet, bool& alone) {
    meet_ = std::move(meet);
    alone_ = &alone;
  }

  // Enqueues the step and returns; kMostInFlight may be under way, of which the last alone may have Outcome::logits or
  // histories. The plan and the histories may change afterwards. Throws InvalidArgument when the plan is malformed or
  // larger than the limits, and what operators throw.
  void start(const StepPlan& plan, Outcome outcome, Histories histories = {});

  // Waits for the oldest step that was started and is not finished. Throws what operators throw, and Timeout when it
  // takes longer than kLongestWait, as the steps may then still be running, or when it or a step started after it is
  // poisoned. After a Timeout every later call throws Failure.
  StepResult finish();

  // After an error of either no step is under way, and the cache holds the tokens of those that were, or not.
  int num_in_flight() const { return num_in_flight_; }

  // A step by itself, nothing else being under way: start, finish.
  Tensor run(const StepPlan& plan);
  std::span<const std::int32_t> sample(const StepPlan& plan, Histories histories = {});
  void compute(const StepPlan& plan);

  // The logits of the last step, which is finished, for whoever wants them after all.
  Tensor fetch_logits();

 private:
  // How tokens are chosen from logits on the device.
  enum class Choice : std::uint8_t { none, greedy, sampled };

  // What a step that is under way has of the host's memory.
  struct Slot {
    HostMemory step;     // where place() writes
    HostMemory samples;  // a SampleRow for each sample
    HostMemory tokens;   // that were chosen
    Event done;          // on a GPU
    Tensor logits;
    std::size_t num_tokens = 0;  // of `tokens`
  };

  // A step of a size that is prepared: computed once as it is, so that all kernels are loaded, and then recorded.
  struct Decode {
    bool computed = false;
    Graph graph;
    Tensor logits;
  };

  // What is baked into a graph: the number of sequences, how tokens are chosen, which slot the step is in, whether
  // it takes tokens from the other, the tokens of its first part, and what rank 0 has chosen.
  using DecodeKey = std::tuple<int, Choice, int, bool, int, StepChoices>;

  template <class Action>
  void guarded(Action action);
  void enqueue(const StepPlan& plan, Choice choice, Histories histories);
  void load_kernels_of(const StepPlan& plan, Choice choice);
  Tensor enqueue_on_gpu(const StepPlan& plan, Choice choice);
  Tensor enqueue_decode(const StepPlan& plan, Choice choice);
  Tensor enqueue_model(const StepPlan& plan, const StepTensors& step, Choice choice);
  StepTensors place_step(const StepPlan& plan, Choice choice);
  void place_histories(std::size_t num_samples, Histories histories);
  void enqueue_choice(const Tensor& logits, Choice choice);
  Tensor enqueue_fetch();
  Slot& slot() { return slots_[static_cast<std::size_t>(next_slot_)]; }
  void synchronize();
  void drain();
  void refuse_poisoned();
  void require_sound() const;

  ExecutorLimits limits_;
  bool stuck_ = false;    // a step has not ended in time
  std::string poisoned_;  // by which wait; empty: no step is
  std::unique_ptr<Model> model_;
  KvCache cache_;
  Arena arena_;
  StepInputs inputs_;           // on a GPU, at the arena's beginning
  std::size_t model_mark_ = 0;  // of the arena: where the model's tensors begin
  ThreadPool pool_;
  std::array<Slot, kMostInFlight> slots_;
  int next_slot_ = 0;  // round robin
  int num_in_flight_ = 0;
  std::size_t num_chosen_ = 0;  // tokens, by the step that was started last
  HostMemory host_logits_;      // on a GPU: what run() returns
  HostMemory host_histories_;   // from the first step with penalties on
  HostMemory wait_record_;      // of the stream
  WaitWatch watch_;
  HostMemory candidates_;        // on the CPU, from the first step on whose tokens are chosen there
  std::vector<SampleRow> rows_;  // of the step that is enqueued: where its histories lie
  Tensor logits_;                // of the last step, on the device
  StepPlan padded_;
  std::function<void()> meet_;  // share_gpu(); may be empty
  bool* alone_ = nullptr;
  // Tokens, samples, tokens of the first part and choices of steps, if ranks share a GPU.
  std::set<std::tuple<std::size_t, std::size_t, int, StepChoices>> known_sizes_;
  Stream stream_;                            // its worker ends before what it works on
  Lane lane_;                                // of stream_
  std::unique_ptr<TransferLane> transfers_;  // where steps may be in two parts
  LayerTiles tiles_;                         // likewise
  std::map<DecodeKey, Decode> decodes_;      // gone before the stream
};

// Row `row` of float32 logits.
std::span<const float> logits_row(const Tensor& logits, std::int64_t row);

}  // namespace heddle

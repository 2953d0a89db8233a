// Carries out steps on one device: owns the model, its key-value cache, the arena and the stream.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/graph.h"
#include "base/pinned_buffer.h"
#include "base/stream.h"
#include "base/thread_pool.h"
#include "engine/kv_cache.h"
#include "kernels/sample.h"
#include "models/model.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

struct ExecutorLimits {
  StepLimits step;
  int page_size = 32;  // tokens
  int num_pages = 1;
};

// Runs where the model's weights lie. On a GPU a step's arrays go there in one copy, its logits come back in another,
// and the host waits once, at the step's end. Steps that decode are prepared as graphs there, one for each of few sizes:
// in between, sequences that nobody asked for fill the step up.
class Executor {
 public:
  // `threads`: of the CPU. Throws Failure when memory is short.
  Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads);

  const Model& model() const { return *model_; }
  Device device() const { return model_->device(); }
  const KvPages& kv_pages() const { return cache_.pages(); }  // on a GPU with spare pages behind limits.num_pages
  Stream& stream() { return stream_; }

  // Computes the step and returns its logits [samples.size(), vocab_size] in the host's memory, valid until the next
  // call. Throws InvalidArgument when the plan is malformed or larger than the limits, and what operators throw; nothing
  // of the step is then still running, and the cache holds its tokens or not. Throws Timeout when the step takes longer
  // than kLongestWait; it may then still be running, and every later call throws Failure.
  Tensor run(const StepPlan& plan);

  // The same, and chooses a token for each sample on the GPU, by the sample's own parameters, which must have no
  // penalties. In place of a token kUnsoundRow (kernels/argmax.h). Valid until the next call.
  std::span<const std::int32_t> sample(const StepPlan& plan);

  // The logits of the last step, for whoever wants them after all.
  Tensor fetch_logits();

  // Computes the step and leaves its logits on the device: what a benchmark times.
  void compute(const StepPlan& plan);

 private:
  // What happens to logits on the device.
  enum class Choice : std::uint8_t { none, greedy, sampled };

  // A step of a size that is prepared: computed once as it is, so that all kernels are loaded, and then recorded.
  struct Decode {
    bool computed = false;
    Graph graph;
    Tensor logits;
  };

  template <class Enqueue>
  void guarded(const StepPlan& plan, Enqueue enqueue);
  void enqueue(const StepPlan& plan, Choice choice);
  Tensor enqueue_on_gpu(const StepPlan& plan, Choice choice);
  Tensor enqueue_decode(const StepPlan& plan, Choice choice);
  StepTensors place_on_gpu(const StepPlan& plan, Choice choice);
  void enqueue_choice(const Tensor& logits, Choice choice);
  Tensor enqueue_fetch();
  int decode_batch(int num_sequences) const;
  void drain();

  ExecutorLimits limits_;
  bool stuck_ = false;  // a step has not ended in time
  std::unique_ptr<Model> model_;
  KvCache cache_;
  Arena arena_;
  ThreadPool pool_;
  PinnedBuffer host_step_;        // on a GPU: where place() writes
  PinnedBuffer host_samples_;     // likewise: a SampleRow for each sample
  PinnedBuffer host_logits_;      // likewise: what run() returns
  PinnedBuffer host_tokens_;      // likewise: what sample() returns
  SampleRow* samples_ = nullptr;  // on the GPU, in the arena
  Tensor logits_;                 // of the last step, on the device
  StepPlan padded_;
  Stream stream_;                                     // its worker ends before what it works on
  std::map<std::pair<int, Choice>, Decode> decodes_;  // by the number of sequences; gone before the stream
};

// The cache that an executor makes, without its memory.
KvPages cache_shape(const Model& model, const ExecutorLimits& limits);

// Of the arena that an executor makes.
std::size_t arena_bytes(const Model& model, const ExecutorLimits& limits);

// Row `row` of float32 logits.
std::span<const float> logits_row(const Tensor& logits, std::int64_t row);

}  // namespace heddle

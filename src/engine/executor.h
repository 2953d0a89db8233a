// Carries out steps on one device: owns the model, its key-value cache, the arena and the stream.
#pragma once

#include <memory>
#include <span>

#include "base/stream.h"
#include "base/thread_pool.h"
#include "engine/kv_cache.h"
#include "models/model.h"
#include "step/arena.h"
#include "step/step_plan.h"

namespace heddle {

struct ExecutorLimits {
  StepLimits step;
  int page_size = 32;  // tokens
  int num_pages = 1;
};

class Executor {
 public:
  // `threads`: of the CPU. Throws Failure when memory is short.
  Executor(std::unique_ptr<Model> model, const ExecutorLimits& limits, int threads);

  const Model& model() const { return *model_; }
  const KvPages& kv_pages() const { return cache_.pages(); }
  Stream& stream() { return stream_; }

  // Computes the step and returns its logits [samples.size(), vocab_size], valid until the next call. Throws
  // InvalidArgument when the plan is malformed or larger than the limits, and what operators throw; nothing of the step
  // is then still running, and the cache holds its tokens or not. Throws Timeout when the step takes longer than
  // kLongestWait; it may then still be running, and every later call throws Failure.
  Tensor run(const StepPlan& plan);

 private:
  Tensor enqueue(const StepPlan& plan);
  void drain();

  ExecutorLimits limits_;
  bool stuck_ = false;  // a step has not ended in time
  std::unique_ptr<Model> model_;
  KvCache cache_;
  Arena arena_;
  ThreadPool pool_;
  Stream stream_;  // last: its worker ends before what it works on
};

// Row `row` of float32 logits.
std::span<const float> logits_row(const Tensor& logits, std::int64_t row);

}  // namespace heddle

// A strategy carries out the parts of a forward pass that depend on how the model is spread over ranks. Chosen when the
// model is built; the forward pass does not ask.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/function_ref.h"
#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "kernels/linear/linear.h"
#include "parallel/attention_strategy.h"
#include "parallel/execution.h"
#include "step/arena.h"
#include "step/step_choices.h"

namespace heddle {

// A model's hidden state: the residual, and what the last block produced and nobody has added yet.
// Where the model is spread out, `delta` is this rank's partial sum.
struct Hidden {
  Tensor residual;  // [num_tokens, hidden]
  Tensor delta;     // likewise; data null: nothing is pending
};

struct Norm {
  const void* weight = nullptr;  // [hidden], float32 on the CPU
  float eps = 0;
};

// Where the blocks of a step leave what they produce, and what they compute from.
struct BlockRows {
  Tensor delta;       // [num_tokens, hidden]
  Tensor normalized;  // likewise
};
struct BlockRowsShape {
  std::int64_t num_tokens, hidden;
  DType deltas, activations;
};

struct WantedRows {
  const std::int32_t* rows = nullptr;  // [num_rows], ascending
  std::int64_t num_rows = 0;
  std::int64_t prefix_tokens = 0;  // where the step was computed in two parts: tokens of the first; else 0
};

// The blocks of a model, as a strategy drives them. Each normalises the hidden state, and adds to it what it computes
// from that.
struct Blocks {
  int count = 0;
  FunctionRef<Norm(int block)> norm;
  // Enqueues on the execution's compute lane: leaves what the block makes of the part's `normalized` in its `delta`.
  FunctionRef<void(int block, int part)> compute;
};

// A part's rows of a step's tensors. They overlap no other part's.
struct PartRows {
  Tensor residual;    // [num_tokens, hidden], float32
  Tensor delta;       // [num_tokens, hidden]
  Tensor normalized;  // [num_tokens, hidden]

  // What a block begins with: before the first one nothing is pending.
  Hidden before(int block) const { return {.residual = residual, .delta = block == 0 ? Tensor{} : delta}; }
};

// Every rank calls the same functions in the same order, with tensors of the same number of tokens. On the lane of a dry
// run (kernels/dry_run.h) they enqueue nothing and wait for nobody.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Before the functions below are called for a step. Each of them then does as rank 0 has chosen for it.
  virtual void begin_step(const StepChoices& choices) { static_cast<void>(choices); }

  // At the beginning of a step. Of the arena, unless other ranks read and write them.
  virtual BlockRows take_block_rows(const BlockRowsShape& shape, Arena& arena, const Lane& lane) {
    static_cast<void>(lane);
    const Tensor delta = arena.take(shape.num_tokens, shape.hidden, shape.deltas);
    return {.delta = delta, .normalized = arena.take(shape.num_tokens, shape.hidden, shape.activations)};
  }

  // y[t] = the embedding of tokens[t]. `table`: this rank's rows of it. y [num_tokens, hidden], float32.
  virtual void embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) = 0;

  // residual += delta, summed over the ranks; normalized = RMSNorm(residual). Afterwards nothing is pending.
  // `normalized` [num_tokens, hidden], float32 or bfloat16; on a GPU or float16.
  virtual void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) = 0;

  // The part of normalize() before its norm, for an operator that adds and normalises by itself: the sum over ranks of
  // what is pending stays pending, on every rank. Only where why_not_summed() is empty, with sums by themselves.
  virtual void sum_pending(const Hidden& hidden, const Lane& lane) {
    static_cast<void>(hidden), static_cast<void>(lane);
  }
  // Why sum_pending() cannot be called: "ranks have rows of their own". Empty: it can.
  virtual std::string why_not_summed() const { return {}; }

  // The rows of the hidden state whose logits a step wants: `hidden` itself where all are wanted, otherwise tensors of the
  // arena. Where ranks hold parts of the residual, every rank then has what it needs of these rows for normalize().
  virtual Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) = 0;

  // Runs all blocks on each part: for each block normalize(), then its own work. Afterwards the last block's `delta` is
  // pending. A block of the second part comes behind the same block of the first, which writes keys that it reads.
  virtual void run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) = 0;

  // y = x W^T + bias, of this rank's rows or columns of W. x [num_tokens, in_features], y [num_tokens, out_features], of
  // dtypes that kernels/linear/linear.h takes; the lane's workspace as large as it wants. `role`: where in the forward
  // pass the GEMM stands.
  virtual void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) = 0;

  // y = silu(gate) * up, of gate and up = x W^T + bias, stacked (kernels/linear/linear_swiglu.h). y [num_tokens,
  // intermediate]; gate_up [num_tokens, 2 * intermediate] is scratch.
  virtual void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) = 0;

  // y = x W^T of the whole vocabulary, on every rank. `weight`: this rank's rows. y [num_rows, vocab_size], float32,
  // rows without gaps.
  virtual void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) = 0;

  // The other axis. Local, unless another was given before the first step.
  AttentionStrategy& attention() const { return *attention_; }
  void spread_attention(std::unique_ptr<AttentionStrategy> attention) { attention_ = std::move(attention); }

 private:
  std::unique_ptr<AttentionStrategy> attention_ = std::make_unique<LocalAttention>();
};

}  // namespace heddle

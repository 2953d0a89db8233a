// The operators of one step of a model, each as a case of `heddle bench operator`. A dry run of the step names them
// (kernels/dry_run.h), so the bench times what the model runs; case_of() says how one is timed and checked.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bench/operands.h"
#include "kernels/dry_run.h"
#include "models/model.h"
#include "models/registry.h"

namespace heddle {

// A step of `batch` sequences, each of `tokens` new tokens after `context`; a row of logits for each sequence.
struct OperatorStep {
  Model& model;            // an outline is enough
  ModelDescription sizes;  // of the model, for a baseline
  int batch = 1;
  int context = 0;
  int tokens = 1;
  int page_size = 32;

  int rows() const { return batch * tokens; }
  DType dtype() const { return model.shape().dtype; }  // of most weights, and of the cache
};

// A case with operands: several sets, between which calls alternate.
struct PreparedOperator {
  std::function<void(int set)> call;  // enqueues on the operands' stream
  // Calls once and gives the error against the CPU's operator, of rows where there are many: relative_error.
  std::function<double()> check;
  double most_error = 0;  // that roundings of these dtypes can explain
};

struct OperatorCase {
  std::string name;   // "linear qkv": operator and role
  std::string shape;  // for a person; with the name and the bytes it tells cases of a step apart
  int calls_per_step = 1;
  double bytes = 0;  // that a call has to read and write, each once
  double flops = 0;
  nlohmann::json of_baseline = nlohmann::json::object();  // what a baseline is told of the case besides baseline_step()
  std::size_t set_bytes = 0;  // of one set's operands that in a step come from memory; 0: they come from the cache
  std::function<PreparedOperator(Operands& operands, int sets)> prepare;
};

// What a baseline is told of a step.
nlohmann::json baseline_step(const OperatorStep& step);

// In the step's order, equal calls as one case. Without operators that no case times: plan_attention, which is once for
// all layers of a window, and what chooses tokens.
std::vector<OperatorCase> operator_cases(const OperatorStep& step);

// The operators that operator_cases knows: "linear", "attention", ...
const std::vector<std::string>& operator_names();

// The case of a call that a dry run of `step` has recorded. Operands have the call's shapes, dtypes and strides.
OperatorCase case_of(const EmbeddingParams& call, const OperatorStep& step);
OperatorCase case_of(const RmsNormParams& call, const OperatorStep& step);
OperatorCase case_of(const LinearParams& call, const OperatorStep& step);
OperatorCase case_of(const LinearSwigluParams& call, const OperatorStep& step);
OperatorCase case_of(const SwigluParams& call, const OperatorStep& step);
OperatorCase case_of(const RopeKvWriteParams& call, const OperatorStep& step);
OperatorCase case_of(const AttentionParams& call, const OperatorStep& step);
OperatorCase case_of(const GatherRowsParams& call, const OperatorStep& step);
OperatorCase case_of(const HeadLinearParams& call, const OperatorStep& step);
OperatorCase case_of(const LatentKvWriteParams& call, const OperatorStep& step);

// Of long chunks alone, a case for each piece.
OperatorCase case_of(const GatherLatentsParams& call, const OperatorStep& step);
OperatorCase case_of(const ExpandedAttentionParams& call, const OperatorStep& step);

// Of experts. What they cost depends on the router's choice: each token chooses at random, and no expert twice.
OperatorCase case_of(const RouteParams& call, const OperatorStep& step);
OperatorCase case_of(const GroupRowsParams& call, const OperatorStep& step);
OperatorCase case_of(const GroupedLinearParams& call, const OperatorStep& step);
OperatorCase case_of(const GroupedSwigluParams& call, const OperatorStep& step);
OperatorCase case_of(const CombineExpertsParams& call, const OperatorStep& step);
OperatorCase case_of(const MixtureParams& call, const OperatorStep& step);

}  // namespace heddle

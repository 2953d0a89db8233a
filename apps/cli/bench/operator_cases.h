// The operators of one step of a model, each as a case of `heddle bench operator`: what it reads and computes, how it
// is called, and what the CPU's own operator makes of the same operands.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/device.h"
#include "cli/bench/operands.h"
#include "models/llama_config.h"

namespace heddle {

// A step of `batch` sequences, each of `tokens` new tokens after `context`; a row of logits for each sequence.
struct OperatorStep {
  LlamaConfig config;
  DType dtype = DType::bfloat16;  // of weights and cache, and on a GPU of activations
  int batch = 1;
  int context = 0;
  int tokens = 1;
  int page_size = 32;
  Device device;

  int rows() const { return batch * tokens; }
};

// A case with operands: several sets, which calls take in turns.
struct PreparedOperator {
  std::function<void(int set)> call;  // enqueues on the operands' stream
  // Calls once and gives the error against the CPU's operator, of rows where there are many: relative_error.
  std::function<double()> check;
  double most_error = 0;  // that roundings of these dtypes can explain
};

struct OperatorCase {
  std::string name;   // "linear qkv": operator and role
  std::string shape;  // for a person
  int calls_per_step = 1;
  double bytes = 0;  // that a call has to read and write, each once
  double flops = 0;
  nlohmann::json of_peer = nlohmann::json::object();  // what a peer is told of the case besides peer_step()
  std::size_t set_bytes = 0;  // of one set's operands that in a step come from memory; 0: they come from the cache
  std::function<PreparedOperator(Operands& operands, int sets)> prepare;
};

// What a peer is told of a step.
nlohmann::json peer_step(const OperatorStep& step);

// In the step's order.
std::vector<OperatorCase> operator_cases(const OperatorStep& step);

// The operators that operator_cases knows: "linear", "attention", ...
const std::vector<std::string>& operator_names();

}  // namespace heddle

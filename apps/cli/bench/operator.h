// The operators of a step, timed one by one: what bench operator prints, and what bench decode and prefill say of a
// GPU's step.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/bench/baseline.h"
#include "cli/bench/device.h"
#include "cli/bench/operator_cases.h"
#include "cli/interrupt.h"

namespace heddle {

class OperatorTimes {
 public:
  // `wanted`: of operator_names(); empty: all.
  OperatorTimes(BenchDevice& device, int repeats, std::set<std::string> wanted, const InterruptGuard& guard);

  // From now on each operator is timed interleaved with `baseline`, which lives as long. A baseline may reject an
  // operator.
  void compare_with(BenchBaseline& baseline, const std::string& name);

  // {"batch", "context", "tokens", "page_size", "operators": [...], "seconds_per_step", "floor_seconds_per_step"} of
  // all operators of the step, and rows of the table.
  nlohmann::ordered_json measure(const OperatorStep& step);

  std::string table() const;
  const std::string& wrong() const { return wrong_; }  // the first operator whose results were wrong; empty: none was

 private:
  struct Samples {
    std::vector<double> seconds;           // a call
    std::vector<double> baseline_seconds;  // none: without a baseline, or it rejects the operator
  };

  // `calls` calls, which alternate between `sets` sets of operands.
  struct Sample {
    int sets, calls;
  };

  nlohmann::ordered_json measure(const OperatorCase& one, const OperatorStep& step, double gbps_limit);
  Samples interleaved_samples(const OperatorCase& one, const PreparedOperator& prepared, const OperatorStep& step,
                              Sample sample, nlohmann::ordered_json& record);

  BenchDevice& device_;
  int repeats_;
  std::set<std::string> wanted_;
  const InterruptGuard& guard_;
  BenchBaseline* baseline_ = nullptr;
  std::vector<std::vector<std::string>> rows_;
  std::string wrong_;
};

}  // namespace heddle

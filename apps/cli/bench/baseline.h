// A baseline: another program that runs the same model in the same shapes, interleaved with Heddle. bench/README.md has
// the protocol; its JSON fields call a baseline "peer".
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "weights/model_source.h"

namespace heddle {

// Its adapter is bench/baselines/NAME.py ('.' and '-' in NAME become '_') in $HEDDLE_BASELINES or the source tree, run by
// $HEDDLE_BASELINE_PYTHON or python3.
class BenchBaseline {
 public:
  // Starts it and reads its hello. Throws InputError when there is no such adapter, Failure when it cannot be run.
  explicit BenchBaseline(const std::string& name);
  BenchBaseline(const BenchBaseline&) = delete;
  BenchBaseline& operator=(const BenchBaseline&) = delete;
  ~BenchBaseline();  // asks it to end, and kills it if it does not

  const nlohmann::json& hello() const { return hello_; }  // {"name", "version", "settings"}

  // Sends one line, returns the answer. Throws Failure, with the end of the baseline's standard error, when it fails or
  // ends; Timeout when no answer comes in time.
  nlohmann::json ask(const nlohmann::json& request, std::chrono::seconds limit);

  // Lets it prepare a case, which may take an hour if it must convert a model first; returns its answer.
  nlohmann::json prepare(const nlohmann::json& one);
  // The seconds of a sample of the last case. Throws Failure unless they are a positive number.
  double sample();

 private:
  void send(const std::string& line, std::chrono::seconds limit);
  nlohmann::json receive(std::chrono::seconds limit);
  void stop();
  [[noreturn]] void fail(const std::string& what);

  std::string name_;
  pid_t process_ = -1;
  int in_ = -1;   // the baseline's standard input
  int out_ = -1;  // its standard output
  int err_ = -1;  // its standard error, a file
  std::string pending_;
  nlohmann::json hello_;
};

// The pause between timing one side and the other: until the threads of the first have stopped spinning.
inline constexpr std::chrono::milliseconds kBaselineSettle{20};
inline constexpr std::chrono::seconds kBaselineSampleLimit{600};

// A short text that identifies a model for copies of it in other formats: from config, tensors, and a part of each
// tensor's values. A baseline that caches such copies uses it to check that a copy still matches.
std::string fingerprint_of(const ModelSource& model);

}  // namespace heddle

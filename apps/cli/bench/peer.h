// A peer: another program that runs the same model in the same shapes, in turns with Heddle. bench/README.md has the
// protocol.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "weights/model_source.h"

namespace heddle {

// Its adapter is bench/peers/NAME.py ('.' and '-' in NAME written '_'), of $HEDDLE_PEERS or of the source tree, run by
// $HEDDLE_PEER_PYTHON or python3.
class BenchPeer {
 public:
  // Starts it and hears its hello. Throws InputError when there is no such adapter, Failure when it cannot be run.
  explicit BenchPeer(const std::string& name);
  BenchPeer(const BenchPeer&) = delete;
  BenchPeer& operator=(const BenchPeer&) = delete;
  ~BenchPeer();  // tells it to end, and ends it when it does not

  const nlohmann::json& hello() const { return hello_; }  // {"name", "version", "settings"}

  // Sends one line, returns the answer. Throws Failure with the end of the peer's standard error when it fails or ends;
  // Timeout when there is no answer in time.
  nlohmann::json ask(const nlohmann::json& request, std::chrono::seconds limit);

  // Has it get ready for a case, which may take an hour where it has to convert a model first; returns what it says.
  nlohmann::json prepare(const nlohmann::json& one);
  // The seconds of a sample of the last case. Throws Failure when they are no positive number.
  double sample();

 private:
  void send(const std::string& line, std::chrono::seconds limit);
  nlohmann::json receive(std::chrono::seconds limit);
  void stop();
  [[noreturn]] void fail(const std::string& what);

  std::string name_;
  pid_t process_ = -1;
  int in_ = -1;   // the peer's standard input
  int out_ = -1;  // its standard output
  int err_ = -1;  // its standard error, a file
  std::string pending_;
  nlohmann::json hello_;
};

// Between what is timed of one side and of the other: until the threads of the first have stopped spinning.
inline constexpr std::chrono::milliseconds kPeerSettle{20};
inline constexpr std::chrono::seconds kPeerSampleLimit{600};

// What a copy of the model in another format depends on, as a short text: config, tensors, and a part of each one's
// values. A peer that keeps such copies tells by it whether one is still of this model.
std::string fingerprint_of(const ModelSource& model);

}  // namespace heddle

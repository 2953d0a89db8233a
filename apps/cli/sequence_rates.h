// The rates that sequence parallelism is predicted from: the StreamFusion paper's, or measured ones.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sequence/timeline.h"

namespace CLI {
class App;
}

namespace heddle {

struct SequenceRateOptions {
  std::vector<std::string> files;
  std::optional<double> tflops, machine_gbps, gpu_gbps, local_us, remote_us;  // in place of the files'
};

// --rates, --tflops, --machine-gbps, --gpu-gbps, --local-us and --remote-us. `options` must outlive `command`.
void add_sequence_rate_options(CLI::App& command, SequenceRateOptions& options);
inline constexpr const char* kSequenceRateOptions[] = {"--rates",    "--tflops",   "--machine-gbps",
                                                       "--gpu-gbps", "--local-us", "--remote-us"};

// Rates, of which a kernel's may depend on the head dimension.
class SequenceRateTable {
 public:
  // Reads the files in order; a later one goes before an earlier one. A file is a JSON object of rates, a record with
  // such an object in "rates", or a record of figure 12, of which each head dimension's longest layer in one piece and
  // one call counts. Throws InputError that names a file which is none of these, and a rate that is unknown or not
  // above 0.
  explicit SequenceRateTable(const SequenceRateOptions& options);

  // Of a head dimension that no file has: those of the nearest one.
  SequenceRates of(int head_dim) const;

  // Of a record: "source", and each rate in the unit of its name. --rates takes it again.
  nlohmann::ordered_json json() const;
  // "the paper's" or the files' names, and "options" where some were given.
  const std::string& source() const { return source_; }
  // Whether a file or an option gave the rate of attention, without which no layer of this machine is predicted.
  bool gives_attention() const { return gives_attention_; }

 private:
  SequenceRates rates_;
  std::map<int, double> flops_;  // by head dimension; empty: rates_.attention_flops
  std::string source_ = "the paper's";
  bool gives_attention_ = false;
};

}  // namespace heddle

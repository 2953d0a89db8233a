// Where the record and the table of a benchmark go.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "cli/bench/bench.h"

namespace heddle {

// Opened before the benchmark runs, so that an unwritable file is reported before hours of measuring.
class RecordFile {
 public:
  // The record begins with bench_record(kind, head). `json_file` as in BenchOptions. Throws InputError when it is a
  // folder, and as PendingFile does.
  RecordFile(const std::string& kind, const BenchOptions& head, const std::optional<std::string>& json_file);

  // Writes the record with the result's fields. Prints the table, or with --json and no file the record. Throws Failure
  // afterwards if the result has a failure.
  void write(const BenchResult& result);

 private:
  nlohmann::ordered_json record_;
  bool json_ = false;
  std::optional<PendingFile> file_;
};

}  // namespace heddle

#include "cli/bench/write_record.h"

#include <filesystem>
#include <span>

#include "base/error.h"
#include "cli/bench/record.h"
#include "cli/output.h"

namespace heddle {

RecordFile::RecordFile(const std::string& kind, const BenchOptions& head, const std::optional<std::string>& json_file)
    : record_(bench_record(kind, head)), json_(json_file.has_value()) {
  if (!json_file || json_file->empty() || *json_file == "-") return;
  if (std::error_code ignored; std::filesystem::is_directory(*json_file, ignored))
    throw_error<InputError>("--json {}: is a folder, expected the name of a file", *json_file);
  file_.emplace(*json_file);
}

void RecordFile::write(const BenchResult& result) {
  record_.update(result.fields);
  record_["machine"]["clock_mhz_after"] = clock_mhz();
  const std::string text = record_.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file_) {
    file_->write(std::as_bytes(std::span(text)));
    file_->commit();
  }
  write_stdout(json_ && !file_ ? text : result.table);
  if (!result.failure.empty()) throw Failure(result.failure);
}

}  // namespace heddle

// The one store of what was measured or tuned on this machine. A cache: whatever is wrong with it costs a warning and a
// new measurement, never the run.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// $HEDDLE_CACHE_DIR/tuned.json, or $XDG_CACHE_HOME/heddle/tuned.json, or $HOME/.cache/heddle/tuned.json, by the first
// of these variables that is set. Empty when none is.
std::filesystem::path default_tuned_store_file();

// Values by (machine, heddle's version, name). May be used from several threads, and by several processes on one file:
// a put keeps what others have put under other names; of two puts under one name the later stays. A reader sees a whole
// file, always.
class TunedStore {
 public:
  // Reads `file`; an empty path means a store that lives in memory only. A file that is corrupt, larger than 4 MiB, or
  // none of ours counts as empty, with one warning on standard error, and the next put replaces it.
  TunedStore(std::filesystem::path file, std::string machine, std::string version);
  TunedStore(const TunedStore&) = delete;
  TunedStore& operator=(const TunedStore&) = delete;
  ~TunedStore();

  // The value as this store read it or as it was put here last. Nothing: not known, or not of that type.
  std::optional<nlohmann::json> value(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;

  // Keeps the value, and writes it to the file under a lock (waiting at most some seconds for it). A file that cannot
  // be written costs one warning. The folder is made where it is missing.
  void put(std::string_view name, const nlohmann::json& value);

  const std::filesystem::path& file() const { return file_; }

 private:
  void write(std::string_view name, const nlohmann::json& value);
  void warn(std::string_view message);

  std::filesystem::path file_;
  std::string machine_;
  std::string version_;
  mutable std::mutex mutex_;
  std::unique_ptr<nlohmann::json> values_;  // object, by name; guarded by mutex_
  bool warned_ = false;                     // guarded by mutex_
};

}  // namespace heddle

// The store of measurements and tuning results of this machine. It is a cache: any problem with it costs a warning and
// a new measurement, never the run.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// $HEDDLE_CACHE_DIR/tuned.json, or $XDG_CACHE_HOME/heddle/tuned.json, or $HOME/.cache/heddle/tuned.json: the first of
// these variables that is set decides. Empty when none is.
std::filesystem::path default_tuned_store_file();

// Values by (machine, Heddle's version, name). Thread-safe, and several processes may share a file: a put keeps what
// others have put under other names; of two puts under one name the later one wins. A reader always sees a complete
// file.
class TunedStore {
 public:
  // Reads `file`; with an empty path the store lives in memory only. A file that is corrupt, larger than 4 MiB or of
  // another format counts as empty, with one warning on standard error; the next put replaces it.
  TunedStore(std::filesystem::path file, std::string machine, std::string version);
  TunedStore(const TunedStore&) = delete;
  TunedStore& operator=(const TunedStore&) = delete;
  ~TunedStore();

  // The value as this store read it or last put it. Nothing: unknown, or of another type.
  std::optional<nlohmann::json> value(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;

  // Stores the value, and writes it to the file under a lock (waits at most some seconds for it). A file that cannot be
  // written costs one warning. Creates the folder if it is missing.
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

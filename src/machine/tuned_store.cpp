#include "machine/tuned_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::chrono::seconds kLongestLock{5};  // a put holds the lock for about a millisecond
constexpr int kFormat = 1;

// An exclusive lock on a file beside the store; released when this ends, and by the system when the process does.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644)) {
    if (descriptor_ < 0) throw_error<Failure>("{}: cannot open: {}", path.string(), std::strerror(errno));
    const Deadline deadline = Deadline::after(kLongestLock);
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      const bool held = reason == EWOULDBLOCK;
      if ((held && !deadline.passed()) || reason == EINTR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      ::close(descriptor_);
      if (held)
        throw_error<Timeout>("{}: another process holds it for more than {} s", path.string(), kLongestLock.count());
      throw_error<Failure>("{}: cannot lock: {}", path.string(), std::strerror(reason));
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

// The file: {"format": 1, "machines": {machine: {version: {name: value}}}}.
json empty_document() {
  return {{"format", kFormat}, {"machines", json::object()}};
}

// Throws InputError on any other content. A missing file is empty.
json read_document(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::status(file, error).type() == std::filesystem::file_type::not_found) return empty_document();
  constexpr int kMostDepth = 16;
  json document = parse_json(read_file(file, kMostBytes), file.string(), kMostDepth);
  const JsonField field(document, file.string());
  field.at("format").integer(kFormat, kFormat);
  for (const auto& [machine, versions] : field.at("machines").members())
    for (const auto& [version, values] : versions.members())
      if (!values.is_object()) values.fail_expected("an object");
  return document;
}

std::string serialize(const json& document) {
  return document.dump(1, ' ', true, json::error_handler_t::replace) + "\n";  // ASCII, whatever the strings contain
}

}  // namespace

std::filesystem::path default_tuned_store_file() {
  constexpr const char* kFile = "tuned.json";
  const auto folder = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (const auto cache = folder("HEDDLE_CACHE_DIR"); !cache.empty()) return cache / kFile;
  if (const auto cache = folder("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "heddle" / kFile;
  if (const auto home = folder("HOME"); home.is_absolute()) return home / ".cache" / "heddle" / kFile;
  return {};
}

TunedStore::TunedStore(std::filesystem::path file, std::string machine, std::string version)
    : file_(std::move(file)),
      machine_(std::move(machine)),
      version_(std::move(version)),
      values_(std::make_unique<json>(json::object())) {
  if (file_.empty()) return;
  try {
    const json document = read_document(file_);
    *values_ = document.at("machines").value(machine_, json::object()).value(version_, json::object());
  } catch (const std::runtime_error& error) {
    warn(fmt::format("{}; what was tuned on this machine is not used", error.what()));
  }
}

TunedStore::~TunedStore() = default;

std::optional<json> TunedStore::value(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_->find(name);
  if (found == values_->end() || found->is_null()) return std::nullopt;
  return *found;
}

std::optional<double> TunedStore::number(std::string_view name) const {
  const std::optional<json> found = value(name);
  if (!found || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<std::string> TunedStore::text(std::string_view name) const {
  const std::optional<json> found = value(name);
  if (!found || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

void TunedStore::put(std::string_view name, const json& value) {
  const std::lock_guard lock(mutex_);
  (*values_)[std::string(name)] = value;
  if (file_.empty()) return;
  try {
    write(name, value);
  } catch (const std::exception& error) {
    warn(fmt::format("{}; what was tuned on this machine is not kept", error.what()));
  }
}

void TunedStore::write(std::string_view name, const json& value) {
  if (file_.has_parent_path()) std::filesystem::create_directories(file_.parent_path());
  const FileLock lock(file_.string() + ".lock");
  json document = empty_document();
  try {
    document = read_document(file_);
  } catch (const InputError& error) {
    warn(fmt::format("{}; it is replaced", error.what()));
  }
  json& values = document["machines"][machine_][version_];
  values[std::string(name)] = value;
  std::string text = serialize(document);
  if (text.size() > kMostBytes) {  // entries of other machines and versions are dropped
    const json own = std::move(values);
    document = empty_document();
    document["machines"][machine_][version_] = own;
    text = serialize(document);
  }
  if (text.size() > kMostBytes) throw_error<Failure>("{}: would grow beyond {} bytes", file_.string(), kMostBytes);
  write_file(file_, text);
}

void TunedStore::warn(std::string_view message) {
  if (!std::exchange(warned_, true)) log_warning("{}", message);
}

}  // namespace heddle

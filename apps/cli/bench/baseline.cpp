#include "cli/bench/baseline.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/format_text.h"

extern char** environ;

namespace heddle {
namespace {

using namespace std::chrono_literals;

constexpr auto kHelloLimit = 120s;  // imports may come from a slow disk
constexpr auto kEndLimit = 5s;
constexpr std::size_t kLongestAnswer = std::size_t{64} << 20;
constexpr std::size_t kQuotedStderr = 400;

std::string environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::filesystem::path adapter_of(const std::string& name) {
  std::string base = name;
  for (char& c : base) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (c == '.' || c == '-')
      c = '_';
    else if (!word)
      throw_error<InputError>("--compare: {} is not a baseline's name, expected small letters, digits, . and -",
                              printable_text(name));
  }
  if (base == "torch") base = "torch_llama";  // a file torch.py would hide the library from itself
  std::filesystem::path file =
      std::filesystem::path(environment("HEDDLE_BASELINES", HEDDLE_BASELINES_DEFAULT)) / (base + ".py");
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    throw_error<InputError>("--compare: no baseline {}: there is no file {}; HEDDLE_BASELINES names the folder", name,
                            file.string());
  return file;
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Failure("no pipe to a baseline: " + std::generic_category().message(errno));
  }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  int release(int end) { return std::exchange(ends[end], -1); }
};

// The rest of the time until the deadline, for poll().
int milliseconds_until(const Deadline& deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.time() - Deadline::Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000'000));
}

}  // namespace

BenchBaseline::BenchBaseline(const std::string& name) : name_(name) {
  const std::string adapter = adapter_of(name).string();
  const std::string python = environment("HEDDLE_BASELINE_PYTHON", "python3");
  Pipe to, from;
  err_ = ::memfd_create("baseline-stderr", MFD_CLOEXEC);
  if (err_ < 0) throw Failure("no memory for a baseline's messages");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.ends[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from.ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  const char* const words[] = {python.c_str(), adapter.c_str(), nullptr};
  const int error =
      ::posix_spawnp(&process_, python.c_str(), &actions, nullptr, const_cast<char* const*>(words), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    process_ = -1;
    stop();
    throw_error<Failure>("cannot run {} for the baseline {}: {}; HEDDLE_BASELINE_PYTHON names the interpreter", python,
                         name, std::generic_category().message(error));
  }
  in_ = to.release(1);
  out_ = from.release(0);
  ::close(to.release(0));
  ::close(from.release(1));  // otherwise the end of the baseline would not end its output
  ::fcntl(in_, F_SETFL, O_NONBLOCK);
  try {
    hello_ = receive(kHelloLimit).at("hello");
  } catch (const nlohmann::json::exception&) {
    stop();
    throw_error<Failure>("baseline {}: its first line is not a hello", name);
  } catch (...) {
    stop();
    throw;
  }
}

BenchBaseline::~BenchBaseline() {
  stop();
}

void BenchBaseline::stop() {
  for (int* end : {&in_, &out_})
    if (*end >= 0) ::close(std::exchange(*end, -1));
  if (process_ > 0) {
    const Deadline deadline = Deadline::after(kEndLimit);
    while (::waitpid(process_, nullptr, WNOHANG) == 0) {
      if (deadline.passed()) ::kill(process_, SIGKILL);
      std::this_thread::sleep_for(5ms);
    }
    process_ = -1;
  }
  if (err_ >= 0) ::close(std::exchange(err_, -1));
}

nlohmann::json BenchBaseline::ask(const nlohmann::json& request, std::chrono::seconds limit) {
  send(request.dump() + "\n", limit);
  nlohmann::json answer = receive(limit);
  if (answer.contains("error") && answer["error"].is_string()) fail(answer["error"].get<std::string>());
  return answer;
}

nlohmann::json BenchBaseline::prepare(const nlohmann::json& one) {
  constexpr auto kPrepareLimit = 3600s;
  return ask({{"case", one}}, kPrepareLimit).value("ready", nlohmann::json::object());
}

double BenchBaseline::sample() {
  const nlohmann::json answer = ask({{"sample", nlohmann::json::object()}}, kBaselineSampleLimit);
  const auto seconds = answer.find("seconds");
  if (seconds == answer.end() || !seconds->is_number() || !(seconds->get<double>() > 0))
    throw_error<Failure>("baseline {}: its answer to a sample has no seconds", name_);
  return seconds->get<double>();
}

void BenchBaseline::send(const std::string& line, std::chrono::seconds limit) {
  const Deadline deadline = Deadline::after(limit);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(in_, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) fail("it has ended");
    pollfd writable{in_, POLLOUT, 0};
    if (::poll(&writable, 1, milliseconds_until(deadline)) == 0)
      throw_error<Timeout>("baseline {}: took no request for {} s", name_, limit.count());
  }
}

nlohmann::json BenchBaseline::receive(std::chrono::seconds limit) {
  const Deadline deadline = Deadline::after(limit);
  for (;;) {
    if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      try {
        nlohmann::json answer = parse_json(line, "baseline " + name_);
        if (answer.is_object()) return answer;
      } catch (const InputError& error) {
        fail(error.what());
      }
      fail("its answer is not a JSON object");
    }
    if (pending_.size() > kLongestAnswer) fail("its answer does not end");
    pollfd readable{out_, POLLIN, 0};
    const int ready = ::poll(&readable, 1, milliseconds_until(deadline));
    if (ready == 0) throw_error<Timeout>("baseline {}: no answer for {} s", name_, limit.count());
    if (ready < 0) {
      if (errno == EINTR) continue;  // the caller checks for signals between its requests
      fail("poll failed");
    }
    char bytes[65536];
    const ssize_t count = ::read(out_, bytes, sizeof(bytes));
    if (count > 0)
      pending_.append(bytes, static_cast<std::size_t>(count));
    else if (count == 0 || errno != EINTR)
      fail("it has ended");
  }
}

void BenchBaseline::fail(const std::string& what) {
  std::string messages;
  const off_t size = ::lseek(err_, 0, SEEK_END);
  if (size > 0) {
    const auto wanted = std::min<off_t>(size, kQuotedStderr);
    messages.resize(static_cast<std::size_t>(wanted));
    const ssize_t count = ::pread(err_, messages.data(), messages.size(), size - wanted);
    messages.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  while (!messages.empty() && messages.back() == '\n') messages.pop_back();
  throw_error<Failure>("baseline {}: {}{}{}", name_, printable_text(what),
                       messages.empty() ? "" : "; it says: ", printable_text(messages));
}

std::string fingerprint_of(const ModelSource& model) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::string_view bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  };
  add(model.config().value().dump());
  for (const std::string_view name : model.names()) {
    const TensorInfo& tensor = *model.find(name);
    add(fmt::format("{} {} {}", name, tensor.dtype.name, shape_text(tensor.shape)));
    if (tensor.num_elements() == 0) continue;
    const std::int64_t num_rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    for (const std::int64_t row : {std::int64_t{0}, num_rows - 1}) {
      const TensorRows rows = model.rows(name, row, 1);
      add({reinterpret_cast<const char*>(rows.bytes.data()), rows.bytes.size()});
    }
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace heddle

#include "fabric/process_state.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "machine/system_file.h"

namespace heddle {
namespace {

struct Stat {
  char state = 0;  // 0: there is no such process
  std::uint64_t start_time = 0;
};

// /proc/PID/stat is "PID (NAME) STATE ..."; the name may hold anything. The start time is the 20th field after STATE.
Stat read_stat(int process) {
  const std::string text = read_system_file(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  Stat stat{.state = text[name_end + 2]};
  std::size_t field = name_end + 2;
  for (int i = 0; i < 19 && field != std::string::npos; ++i) field = text.find(' ', field + 1);
  if (field != std::string::npos && field + 1 < text.size())
    std::from_chars(text.data() + field + 1, text.data() + text.size(), stat.start_time);
  return stat;
}

ProcessState state_of(const Stat& stat) {
  switch (stat.state) {
    case 0:
    case 'Z':
    case 'X':
      return ProcessState::gone;
    case 'T':
    case 't':
      return ProcessState::stopped;
    default:
      return ProcessState::running;
  }
}

std::uint64_t this_machine() {
  static const std::uint64_t here = [] {
    std::error_code error;
    const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid", error);
    return std::hash<std::string>{}(read_system_file("/proc/sys/kernel/random/boot_id") + processes.string());
  }();
  return here;
}

}  // namespace

ProcessIdentity own_process() {
  const auto process = static_cast<std::int32_t>(getpid());
  return process_of_this_machine(process, read_stat(process).start_time);
}

ProcessIdentity process_of_this_machine(std::int32_t process, std::uint64_t start_time) {
  return {.machine = this_machine(), .start_time = start_time, .process = process};
}

ProcessState state_of(const ProcessIdentity& identity) {
  if (identity.machine != this_machine() || identity.start_time == 0) return ProcessState::unknown;
  const Stat stat = read_stat(identity.process);
  if (stat.state != 0 && stat.start_time != identity.start_time) return ProcessState::gone;
  return state_of(stat);
}

ProcessState state_of_process(int process) {
  return state_of(read_stat(process));
}

std::uint64_t start_time_of_process(int process) {
  const Stat stat = read_stat(process);
  return state_of(stat) == ProcessState::gone ? 0 : stat.start_time;
}

}  // namespace heddle

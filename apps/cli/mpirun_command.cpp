#include "cli/mpirun_command.h"

#include <algorithm>
#include <string_view>

namespace heddle {

std::vector<std::string> mpirun_command(const LaunchOptions& options, const LaunchSurroundings& surroundings) {
  std::vector<std::string> words{surroundings.mpirun};
  const auto add = [&words](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (surroundings.root) add({"--allow-run-as-root"});
  // Allows more ranks than cores; ranks then yield while they wait, and are not bound to cores.
  add({"--oversubscribe", "--bind-to", "none", "-n", std::to_string(options.num_ranks)});
  if (!options.hosts.empty()) {
    add({"--host", options.hosts});
    // Windows over TCP: `rdma`, the default, does not support them; `ob1` leaves the choice of transport to btl.
    if (!surroundings.have_osc_choice)
      add({"--mca", "pml", "ob1", "--mca", "osc", "pt2pt", "--mca", "btl", "tcp,self"});
  }
  if (!options.interface.empty())
    add({"--mca", "btl_tcp_if_include", options.interface, "--mca", "oob_tcp_if_include", options.interface});
  // No multicast over NVLink: it needs rights that shared machines do not grant, and fails late without them.
  add({"-x", "NCCL_NVLS_ENABLE=0", "-x", "NVSHMEM_DISABLE_NVLS=1", "-x", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1"});
  for (const std::string& variable : surroundings.heddle_variables) add({"-x", variable});
  if (options.recovery) add({surroundings.program, "launch", "--as-rank", "--"});
  for (const std::string& word : options.command) words.push_back(word);
  const auto command = words.end() - static_cast<std::ptrdiff_t>(options.command.size());
  if (*command == "heddle") *command = surroundings.program;
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace heddle

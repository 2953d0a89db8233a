#include "cli/bench/rank_hosts.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <vector>

#include "fabric/gather_words.h"

namespace heddle {
namespace {

// Of the running system, and the same in all of its containers and namespaces.
std::uint64_t host_word() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return std::hash<std::string>{}(id);
}

std::uint64_t network_word() {
  std::error_code ignored;
  return std::hash<std::string>{}(std::filesystem::read_symlink("/proc/self/ns/net", ignored).string());
}

}  // namespace

std::string name_of(RankHosts hosts) {
  return hosts == RankHosts::one_host ? "one host" : hosts == RankHosts::namespaces ? "namespaces" : "machines";
}

RankHosts find_rank_hosts(Fabric& fabric, Stream& stream) {
  const std::vector<std::uint64_t> words =
      gather_words(fabric, stream, std::vector<std::uint64_t>{host_word(), network_word()});
  std::set<std::uint64_t> hosts, networks;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    hosts.insert(words[i]);
    networks.insert(words[i + 1]);
  }
  if (hosts.size() > 1) return RankHosts::machines;
  return networks.size() > 1 ? RankHosts::namespaces : RankHosts::one_host;
}

}  // namespace heddle

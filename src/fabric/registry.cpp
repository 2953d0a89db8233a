#include "fabric/registry.h"

#include "base/error.h"
#include "base/printable.h"
#include "fabric/hierarchical/processes.h"
#include "fabric/launch.h"
#include "fabric/mpi/mpi_fabric.h"
#include "fabric/nvlink/nvlink_ranks.h"
#include "fabric/shm/processes.h"

namespace heddle {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Fabric> (*open)(const FabricOptions&);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> built_in;
    built_in.push_back(
        {"shm", [](const FabricOptions& options) { return join_shm_processes(read_launch(), options); }});
    if constexpr (kHaveCuda) {
      built_in.push_back({"nvlink", [](const FabricOptions& options) {
                            return join_nvlink_processes(read_launch(), {.fabric = options});
                          }});
      built_in.push_back({"nvlink-ipc", [](const FabricOptions& options) {
                            return join_nvlink_processes(read_launch(),
                                                         {.fabric = options, .memory = PeerMemoryKind::cuda_ipc});
                          }});
    }
    if constexpr (HEDDLE_MPI) {
      built_in.push_back({"mpi", [](const FabricOptions& options) { return open_mpi_fabric(options); }});
      built_in.push_back({"hierarchical", [](const FabricOptions& options) {
                            return join_hierarchical_processes(read_launch(), options);
                          }});
    }
    if constexpr (kHaveCuda)
      built_in.push_back({"hierarchical-nvlink",
                          [](const FabricOptions& options) { return join_hierarchical_gpus(read_launch(), options); }});
    return built_in;
  }();
  return all;
}

}  // namespace

std::vector<std::string_view> fabric_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

std::unique_ptr<Fabric> open_fabric(std::string_view name, const FabricOptions& options) {
  for (const Entry& entry : entries())
    if (entry.name == name) {
      auto fabric = entry.open(options);
      tell_launcher_of_meeting();
      return fabric;
    }
  throw_error<InputError>("there is no fabric \"{}\" in this build; it has {}", printable(name, 40),
                          fmt::join(fabric_names(), ", "));
}

}  // namespace heddle

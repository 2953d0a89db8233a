// The ranks of a node's GPUs: threads of one process, or processes. Defined only in builds with CUDA.
#pragma once

#include <memory>
#include <vector>

#include "fabric/launch.h"
#include "fabric/nvlink/nvlink.h"

namespace heddle {

class ShmThreads;

// Sets, where the user has not, the variables of the environment that ranks which share a GPU need (README.md). CUDA
// reads them when it starts; NvlinkThreads and join_nvlink_processes come too late if something has asked for GPUs before.
void prepare_shared_gpu();

// One thread per GPU. Rank i has devices[i]; without `devices`, cuda:i, or, with cuda_ipc on a machine of fewer GPUs,
// cuda:(i mod their number). Ranks that share a GPU: DeviceShare in fabric.h.
//
//   NvlinkThreads world(4);
//   run_team(4, [&](TeamMember& member) { auto fabric = world.rank(member.rank()); ... });
class NvlinkThreads {
 public:
  explicit NvlinkThreads(int world_size, const NvlinkOptions& options = {}, std::vector<int> devices = {});
  ~NvlinkThreads();

  // Collective: a rank's fabric, once per rank, on the thread that will use it. Throws as open_nvlink.
  std::unique_ptr<Fabric> rank(int rank);

 private:
  std::unique_ptr<ShmThreads> hosts_;
  NvlinkOptions options_;
  std::vector<int> devices_;
};

// One process per GPU, by its rank on this machine, with the same exception. Throws as join_shm_processes and
// open_nvlink.
std::unique_ptr<Fabric> join_nvlink_processes(const Launch& launch, const NvlinkOptions& options = {});

}  // namespace heddle

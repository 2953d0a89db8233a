#include "fabric/run_ranks.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "fabric/hierarchical/threads.h"
#include "fabric/launch.h"
#include "fabric/nvlink/nvlink_ranks.h"
#include "fabric/registry.h"
#include "fabric/shm/threads.h"

namespace heddle {
namespace {

using RankMain = FunctionRef<void(Fabric&, Stream&)>;

void call_on_own_stream(Fabric& fabric, RankMain rank_main) {
  if (fabric.device().kind == DeviceKind::cuda) {
    Stream stream(fabric.device());
    rank_main(fabric, stream);
    return;
  }
  ThreadPool pool(1);
  Stream stream(pool);
  rank_main(fabric, stream);
}

// Keeps this thread, and those that it will start, to its rank's share of the processors that this process may use: two
// ranks whose threads meet on one core would hand it to each other at every wait. Where there are more
// ranks than processors, the system shares them out.
void keep_to_share(int rank, int ranks) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &usable)) processors.push_back(i);
  const std::size_t count = processors.size(), each = count / static_cast<std::size_t>(ranks);
  if (each == 0) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  for (std::size_t i = 0; i < each; ++i) CPU_SET(processors[static_cast<std::size_t>(rank) * each + i], &share);
  sched_setaffinity(0, sizeof share, &share);  // if that fails, it runs without affinity
}

// A rank that mpirun has started; mpirun may have given it processors of its own already.
void run_process(std::string_view fabric_name, const FabricOptions& options, RankMain rank_main) {
  const auto fabric = open_fabric(fabric_name, options);
  const Launch launch = read_launch();
  if (fabric->device().kind == DeviceKind::cpu && std::getenv("OMPI_MCA_orte_bound_at_launch") == nullptr)
    keep_to_share(launch.local_rank, launch.num_local_ranks);
  call_on_own_stream(*fabric, rank_main);
}

// World is ShmThreads or NvlinkThreads.
template <class World, class... Options>
void run_threads(int ranks, RankMain rank_main, const Options&... options) {
  World world(ranks, options...);
  run_team(ranks, [&](TeamMember& member) {
    const auto fabric = world.rank(member.rank());
    if (fabric->device().kind == DeviceKind::cpu) keep_to_share(member.rank(), ranks);
    call_on_own_stream(*fabric, rank_main);
  });
}

}  // namespace

void run_ranks(std::string_view fabric, int ranks, const FabricOptions& options, RankMain rank_main) {
  if (started_by_mpirun()) return run_process(fabric, options, rank_main);
  if (fabric == "shm") return run_threads<ShmThreads>(ranks, rank_main, options);
  if (fabric == "hierarchical") return run_threads<HierarchicalThreads>(ranks, rank_main, options);
  if constexpr (kHaveCuda) {
    NvlinkOptions nvlink{.fabric = options};
    if (fabric == "nvlink") return run_threads<NvlinkThreads>(ranks, rank_main, nvlink);
    nvlink.memory = PeerMemoryKind::cuda_ipc;
    if (fabric == "nvlink-ipc") return run_threads<NvlinkThreads>(ranks, rank_main, nvlink);
  }
  const std::vector<std::string_view> names = fabric_names();
  if (std::find(names.begin(), names.end(), fabric) == names.end())
    throw_error<InputError>("there is no fabric \"{}\" in this build; it has {}", printable(fabric, 40),
                            fmt::join(names, ", "));
  throw_error<InputError>(
      "the fabric \"{}\" has no ranks that are threads in this build; shm has, and nvlink where heddle is "
      "built with CUDA. Ranks that are processes are started by `heddle launch`",
      printable(fabric, 40));
}

void run_ranks_on_gpus(const std::vector<int>& gpus, const FabricOptions& options, RankMain rank_main) {
  if constexpr (kHaveCuda) {
    const NvlinkOptions nvlink{.fabric = options, .memory = PeerMemoryKind::cuda_ipc};
    return run_threads<NvlinkThreads>(static_cast<int>(gpus.size()), rank_main, nvlink, gpus);
  }
  throw_error<InputError>("there are no ranks on GPUs in a build without CUDA");
}

}  // namespace heddle

#include "fabric/run_ranks.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/team.h"
#include "base/thread_pool.h"
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

// World is ShmThreads or NvlinkThreads.
template <class World, class Options>
void run_threads(int ranks, const Options& options, RankMain rank_main) {
  World world(ranks, options);
  run_team(ranks, [&](TeamMember& member) { call_on_own_stream(*world.rank(member.rank()), rank_main); });
}

}  // namespace

void run_ranks(std::string_view fabric, int ranks, const FabricOptions& options, RankMain rank_main) {
  if (started_by_mpirun()) return call_on_own_stream(*open_fabric(fabric, options), rank_main);
  if (fabric == "shm") return run_threads<ShmThreads>(ranks, options, rank_main);
  if constexpr (kHaveCuda) {
    NvlinkOptions nvlink{.fabric = options};
    if (fabric == "nvlink") return run_threads<NvlinkThreads>(ranks, nvlink, rank_main);
    nvlink.memory = PeerMemoryKind::cuda_ipc;
    if (fabric == "nvlink-ipc") return run_threads<NvlinkThreads>(ranks, nvlink, rank_main);
  }
  throw_error<InputError>(
      "the fabric \"{}\" has no ranks that are threads in this build; shm has, and nvlink where heddle is "
      "built with CUDA. Ranks that are processes are started by `heddle launch`",
      printable(fabric, 40));
}

}  // namespace heddle

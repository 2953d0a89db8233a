#include "fabric/hierarchical/processes.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "fabric/hierarchical/hierarchical_fabric.h"
#include "fabric/hierarchical/machine_ranks.h"
#include "fabric/message_exchange.h"
#include "fabric/mpi/mpi_fabric.h"
#include "fabric/nvlink/nvlink_ranks.h"
#include "fabric/shm/processes.h"
#include "fabric/staged/staged_fabric.h"

namespace heddle {
namespace {

// Collectives between machines use the messages of the fabric across.
class WithMessages final : public HierarchicalFabric, public MessageExchange {
 public:
  WithMessages(std::unique_ptr<Fabric> inside, std::unique_ptr<Fabric> across, int first, MessageExchange& messages)
      : HierarchicalFabric(std::move(inside), std::move(across), first), messages_(messages) {}

  void exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                         std::span<const IncomingMessage> incoming, Tag tag) override {
    messages_.exchange_messages(channel, outgoing, incoming, tag);
  }

 private:
  MessageExchange& messages_;
};

// Tells machines apart that have shared memory in common, as network namespaces do.
std::uint64_t network_of_process() {
  struct stat status {};
  return ::stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0;
}

// The launch of a run that is this machine alone.
Launch inside_launch(const Launch& launch) {
  const int ranks = machine_ranks(launch.num_local_ranks), machine = launch.local_rank / ranks;
  Launch inside = launch;
  inside.rank = inside.local_rank = launch.local_rank % ranks;
  inside.world_size = inside.num_local_ranks = std::min(ranks, launch.num_local_ranks - machine * ranks);
  inside.job_key = fmt::format("{}.{}.{}", launch.job_key, network_of_process(), machine);
  return inside;
}

// With the names that the ranks of the machine have in the run.
FabricOptions inside_options(const Launch& launch, const Launch& machine, const FabricOptions& options) {
  FabricOptions inside = options;
  inside.first_rank = launch.rank - machine.rank;
  if (inside.first_rank < 0 || inside.first_rank + machine.world_size > launch.world_size)
    throw_error<InputError>(
        "the ranks of a machine do not follow each other in this run: rank {} of {} is the {}th of the {} of its "
        "machine; fill one machine after the other (mpirun --map-by slot), or set HEDDLE_FABRIC=mpi",
        launch.rank, launch.world_size, machine.rank, machine.world_size);
  return inside;
}

// Without MPI, machines are those that HEDDLE_MACHINE_RANKS makes of one.
std::unique_ptr<Fabric> join_hosts(const Launch& launch, const FabricOptions& options) {
  if constexpr (HEDDLE_MPI) return open_mpi_fabric(options, nullptr);
  return join_shm_processes(launch, options);
}

}  // namespace

std::unique_ptr<Fabric> join_hierarchical_processes(const Launch& launch, const FabricOptions& options) {
  if constexpr (HEDDLE_MPI) {
    const Launch machine = inside_launch(launch);
    const FabricOptions of_machine = inside_options(launch, machine, options);
    auto inside = join_shm_processes(machine, of_machine);
    auto across = open_mpi_fabric(options, inside->allocate(options.heap_bytes).data);
    auto& messages = dynamic_cast<MessageExchange&>(*across);
    return std::make_unique<WithMessages>(std::move(inside), std::move(across), of_machine.first_rank, messages);
  }
  throw_error<InputError>("there are no messages between machines in a build without MPI");
}

std::unique_ptr<Fabric> join_hierarchical_gpus(const Launch& launch, const FabricOptions& options) {
  if constexpr (kHaveCuda) {
    const Launch machine = inside_launch(launch);
    const FabricOptions of_machine = inside_options(launch, machine, options);
    auto inside = join_nvlink_processes(machine, {.fabric = of_machine, .memory = PeerMemoryKind::cuda_ipc});
    const SymmetricSpan heap = inside->allocate(options.heap_bytes);
    FabricOptions of_hosts = options;
    of_hosts.heap_bytes = StagedFabric::host_heap_bytes(launch.world_size);
    auto across = std::make_unique<StagedFabric>(join_hosts(launch, of_hosts), inside->device(),
                                                 std::span(heap.data, heap.size_bytes),
                                                 StagedOptions{.deadline = options.deadline});
    return std::make_unique<HierarchicalFabric>(std::move(inside), std::move(across), of_machine.first_rank);
  }
  throw_error<InputError>("there are no ranks on GPUs in a build without CUDA");
}

}  // namespace heddle

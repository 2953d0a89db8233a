#include "engine/rank_world.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/log.h"
#include "base/stream.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "collectives/all_reduce.h"
#include "collectives/communicator.h"
#include "engine/control_line.h"
#include "fabric/fabric.h"
#include "fabric/launch.h"
#include "fabric/nvlink/nvlink_ranks.h"
#include "fabric/registry.h"
#include "fabric/shm/threads.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "parallel/context_attention.h"
#include "parallel/context_rows.h"

namespace heddle {
namespace {

bool on_gpus(std::span<const Device> devices) {
  return devices.front().kind == DeviceKind::cuda;
}

// On GPUs the sums of a prompt's chunk are tens of megabytes. Ranks make the same calls, because they carry out the same
// plans, so nothing is compared, which would make hosts wait within a step.
CommunicatorOptions communicator_options(std::span<const Device> devices, TpMode mode) {
  CommunicatorOptions options{.vendor = mode == TpMode::standard};
  if (!on_gpus(devices)) return options;
  options.largest_bytes = std::size_t{4} << 20;
  options.checked_calls = 0;
  return options;
}

// TpMode::standard: by NCCL where each rank has a GPU of its own. NCCL connects the ranks in its first calls; these come
// before any is captured in a graph, of the sizes of one token and of a prompt.
void sum_by_nccl_if_it_can(Communicator& communicator, Stream& stream) {
  const Fabric& fabric = communicator.fabric();
  if (fabric.device().kind == DeviceKind::cpu || fabric.device_share().ranks > 1) return;
  if (!fabric.has(Capability::vendor_collectives)) {
    if (fabric.rank() == 0)
      log_warning("--tp-mode default: no NCCL of this build's version here; Heddle's sums instead");
    return;
  }
  communicator.use(Collective::all_reduce, {{.choice = {Algorithm::vendor}}});
  Buffer room(std::size_t{4} << 20, stream.device());
  enqueue_clear(stream, room.data(), room.size_bytes());
  for (std::size_t bytes = std::size_t{4} << 10; bytes <= room.size_bytes(); bytes *= 32)
    all_reduce(communicator,
               {.input = room.data(), .output = room.data(), .count = bytes / 2, .dtype = DType::bfloat16}, stream);
  communicator.fabric().synchronize(stream);
}

AllReduceNormOptions norm_options(const RankWorldOptions& options) {
  return {.row_bytes = options.step_bytes.rows};
}

FabricOptions fabric_options(std::span<const Device> devices, const RankWorldOptions& options) {
  const auto size = static_cast<int>(devices.size());
  std::size_t heap_bytes = Communicator::heap_bytes(size, devices.front(), communicator_options(devices, options.mode));
  if (uses_all_reduce_norm(options.mode))
    heap_bytes += AllReduceNorm::heap_bytes(size, devices.front(), norm_options(options));
  // Also on GPUs: `sequence` mode of divided contexts exchanges more there than step_bytes counts.
  if (options.context_ranks > 1) heap_bytes += ContextAttention::kHeapBytes + ContextRows::kHeapBytes;
  return {.heap_bytes = heap_bytes + options.step_bytes.exchanges, .deadline = options.deadline};
}

std::string fabric_of_processes(const Launch& launch) {
  const char* const asked = std::getenv("HEDDLE_FABRIC");
  return asked != nullptr ? asked : launch.on_one_machine() ? "shm" : "hierarchical";
}

std::unique_ptr<Fabric> open_on_cpu(const Launch& launch, const FabricOptions& options) {
  const std::string name = fabric_of_processes(launch);
  auto fabric = open_fabric(name, options);
  if (fabric->device().kind != DeviceKind::cpu)
    throw_error<InputError>(
        "HEDDLE_FABRIC: {} has ranks on GPUs; a model on processes runs over shm, mpi or hierarchical", name);
  return fabric;
}

// Over a fabric whose memory is of the same size whatever the options are. Returns the options with the largest `step_bytes`
// of all ranks and rank 0's mode.
RankWorldOptions agree(const Launch& launch, const RankWorldOptions& options, const std::vector<RankFact>& facts) {
  const auto fabric =
      open_on_cpu(launch, {.heap_bytes = ControlLine::heap_bytes(launch.world_size), .deadline = options.deadline});
  ControlLine line(*fabric);
  require_equal_facts(line, facts);
  struct Given {
    std::uint64_t exchange_bytes = 0, row_bytes = 0, mode = 0;
  };
  const Given mine{.exchange_bytes = options.step_bytes.exchanges,
                   .row_bytes = options.step_bytes.rows,
                   .mode = static_cast<std::uint64_t>(options.mode)};
  RankWorldOptions agreed = options;
  bool is_first = true;
  for (const std::vector<std::byte>& bytes : line.gather(std::as_bytes(std::span(&mine, 1)))) {
    Given one;
    require(bytes.size() == sizeof one, "ranks agree by {} bytes, expected {}", bytes.size(), sizeof one);
    std::memcpy(&one, bytes.data(), sizeof one);
    if (std::exchange(is_first, false)) agreed.mode = static_cast<TpMode>(one.mode);
    agreed.step_bytes = max(agreed.step_bytes, {.exchanges = one.exchange_bytes, .rows = one.row_bytes});
  }
  return agreed;
}

std::vector<int> indices_of(std::span<const Device> devices) {
  std::vector<int> indices;
  for (const Device& device : devices) indices.push_back(device.index);
  return indices;
}

}  // namespace

RankWorld::RankWorld(const RankGrid& grid) : grid_(grid), ranks_(static_cast<std::size_t>(grid.size())) {}

// If this throws, the destructor runs, because the delegated constructor has ended: ranks that have come so far part
// together.
RankWorld::RankWorld(std::span<const Device> devices, const RankWorldOptions& world_options)
    : RankWorld(RankGrid{.tensor_ranks = static_cast<int>(devices.size()) / world_options.context_ranks,
                         .context_ranks = world_options.context_ranks}) {
  mode_ = world_options.mode;
  const auto same_kind = [&](const Device& device) { return device.kind == devices.front().kind; };
  require(!devices.empty() && std::ranges::all_of(devices, same_kind), "ranks on devices of several kinds");
  require(kHaveCuda || !on_gpus(devices), "ranks on GPUs, in a build without CUDA");
  require(size() == static_cast<int>(devices.size()), "{} devices for {} ranks", devices.size(), size());
  const auto open = [&](auto& world) {
    // They meet to make them, so each has a thread.
    run_team(size(), [&](TeamMember& member) {
      Member& mine = ranks_[static_cast<std::size_t>(member.rank())];
      mine.fabric = world.rank(member.rank());
      const Ranks team = grid_.tensor_team(member.rank());
      std::optional<ThreadPool> pool;
      if (!on_gpus(devices)) pool.emplace(1);
      Stream stream = pool ? Stream(*pool) : Stream(mine.fabric->device());
      try {
        require_tp_mode(world_options.mode, *mine.fabric);
        mine.communicator =
            std::make_unique<Communicator>(*mine.fabric, team, stream, communicator_options(devices, mode_));
        if (mode_ == TpMode::standard) sum_by_nccl_if_it_can(*mine.communicator, stream);
        if (uses_all_reduce_norm(world_options.mode))
          mine.all_reduce_norm =
              std::make_unique<AllReduceNorm>(*mine.fabric, team, stream, norm_options(world_options));
      } catch (...) {
        mine.fabric->abandon();  // or the others would wait
        throw;
      }
    });
  };
  const FabricOptions options = fabric_options(devices, world_options);
  if constexpr (kHaveCuda) {
    if (on_gpus(devices)) {
      prepare_shared_gpus(devices);
      // Plain CUDA's memory: NCCL takes no two ranks on a GPU.
      NvlinkThreads world(size(), {.fabric = options, .memory = PeerMemoryKind::cuda_ipc}, indices_of(devices));
      open(world);
      return;
    }
  }
  ShmThreads world(size(), options);
  open(world);
}

std::unique_ptr<RankWorld> RankWorld::join(const RankWorldOptions& given, const std::vector<RankFact>& facts) {
  const Launch launch = read_launch();
  const std::vector<Device> devices(static_cast<std::size_t>(launch.world_size));
  const RankWorldOptions agreed = agree(launch, given, facts);
  FabricOptions options = fabric_options(devices, agreed);
  options.heap_bytes += ControlLine::heap_bytes(launch.world_size);
  auto world = std::unique_ptr<RankWorld>(new RankWorld({.tensor_ranks = launch.world_size}));
  world->own_rank_ = launch.rank;
  world->mode_ = agreed.mode;
  Member& mine = world->ranks_[static_cast<std::size_t>(launch.rank)];
  mine.fabric = open_on_cpu(launch, options);
  require_tp_mode(agreed.mode, *mine.fabric);
  const Ranks team = world->grid().tensor_team(launch.rank);
  ThreadPool pool(1);
  Stream stream(pool);
  mine.communicator =
      std::make_unique<Communicator>(*mine.fabric, team, stream, communicator_options(devices, agreed.mode));
  if (uses_all_reduce_norm(agreed.mode))
    mine.all_reduce_norm = std::make_unique<AllReduceNorm>(*mine.fabric, team, stream, norm_options(agreed));
  world->line_ = std::make_unique<ControlLine>(*mine.fabric);
  return world;
}

RankWorld::~RankWorld() {
  line_.reset();
  const auto part = [](Member& member) {
    member.all_reduce_norm.reset();
    member.communicator.reset();
    member.fabric.reset();
  };
  const auto is_here = [](const Member& member) { return member.fabric != nullptr; };
  if (std::ranges::count_if(ranks_, is_here) <= 1) {  // on this thread, which an exception may be unwinding
    std::ranges::for_each(ranks_, part);
    return;
  }
  try {
    run_team(size(), [&](TeamMember& member) { part(ranks_[static_cast<std::size_t>(member.rank())]); });
  } catch (const std::exception& error) {
    log_warning("the ranks' end: {}", error.what());
  }
}

int RankWorld::sms_of_step(int rank) const {
  const DeviceShare share = fabric(rank).device_share();
  return share.ranks > 1 ? share.sms : 0;
}

// On the CPU a rank that has gone ends every wait for it. A GPU's waits look at their own rank's record alone, and their
// host waits for the step; so this thread tells them all.
void RankWorld::abandon(int rank, std::string_view cause) {
  fabric(rank).abandon(cause);
  if (fabric(rank).device().kind == DeviceKind::cpu) return;
  for (int other = 0; other < size(); ++other)
    if (other != rank) fabric(other).abandon();
}

std::size_t exchange_bytes(std::span<const Device> devices, const RankWorldOptions& options) {
  return fabric_options(devices, options).heap_bytes;
}

void prepare_shared_gpus(std::span<const Device> devices) {
  std::vector<int> indices = indices_of(devices);
  std::ranges::sort(indices);
  const bool shared = std::ranges::adjacent_find(indices) != indices.end();
  if constexpr (kHaveCuda)
    if (shared && on_gpus(devices)) prepare_shared_gpu();
}

}  // namespace heddle

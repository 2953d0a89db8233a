#include "engine/rank_models.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/team.h"
#include "engine/control_line.h"
#include "engine/rank_error.h"
#include "engine/step_memory.h"
#include "fabric/launch.h"
#include "models/registry.h"

namespace heddle {
namespace {

// Of so many ranks.
RankGrid grid_of(const LoadOptions& options, int ranks) {
  const int context_ranks = options.context_ranks;
  require(context_ranks >= 1 && ranks % context_ranks == 0, "{} ranks, of which {} divide keys and values", ranks,
          context_ranks);
  return {.tensor_ranks = ranks / context_ranks, .context_ranks = context_ranks};
}

// Without what ranks reach each other by.
ModelRank place_in(const RankGrid& grid, int rank) {
  return {.rank = grid.tensor_rank(rank),
          .ranks = grid.tensor_ranks,
          .shard = grid.shard(rank),
          .context_team = grid.context_team(rank)};
}

ModelRank place_in(RankWorld& world, int rank) {
  ModelRank place = place_in(world.grid(), rank);
  place.communicator = &world.communicator(rank);
  place.all_reduce_norm = world.all_reduce_norm(rank);
  place.fabric = &world.fabric(rank);
  return place;
}

LoadOptions part_of(const LoadOptions& options, Device device, ModelRank place) {
  LoadOptions part = options;
  part.device = device;
  part.place = std::move(place);
  part.place.mode = options.tp_mode;
  return part;
}

// Bytes that all ranks have read so far, for one listener.
class SharedProgress {
 public:
  SharedProgress(const std::function<void(std::size_t)>& listener, const RankGrid& grid)
      : listener_(listener), grid_(grid), done_(static_cast<std::size_t>(grid.size())) {}

  void update(int rank, std::size_t bytes_done) {
    if (!listener_) return;
    const std::lock_guard lock(mutex_);
    done_[static_cast<std::size_t>(rank)] = bytes_done;
    const auto copies = static_cast<std::size_t>(grid_.context_ranks);  // of each byte
    listener_(std::accumulate(done_.begin(), done_.end(), std::size_t{0}) / copies);
  }

 private:
  const std::function<void(std::size_t)>& listener_;
  RankGrid grid_;
  std::mutex mutex_;
  std::vector<std::size_t> done_;
};

// Reports progress, and looks from time to time whether the other ranks live.
class WatchedProgress {
 public:
  WatchedProgress(const std::function<void(std::size_t)>& listener, ControlLine& line)
      : listener_(listener), line_(line) {}

  void operator()(std::size_t bytes_done) {
    constexpr std::chrono::milliseconds kBetween{50};
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ >= kBetween) {
      looked_ = now;
      line_.check();
    }
    if (listener_) listener_(bytes_done);
  }

 private:
  std::function<void(std::size_t)> listener_;
  ControlLine& line_;
  std::chrono::steady_clock::time_point looked_{};
};

template <class Bytes>
std::size_t sum_over(const RankModels& ranks, const Bytes& bytes) {
  return std::accumulate(ranks.begin(), ranks.end(), std::size_t{0},
                         [&](std::size_t sum, const RankPart& part) { return sum + bytes(part.model->shape()); });
}

}  // namespace

int sms_of_step(const RankPart& part, int rank, int most) {
  const int share = part.world == nullptr ? 0 : part.world->sms_of_step(rank);
  return most == 0 || (share > 0 && share < most) ? share : most;
}

RankModels one_rank(std::unique_ptr<Model> model) {
  RankModels ranks(1);
  ranks[0].model = std::move(model);
  return ranks;
}

RankModels load_ranks(const ModelSource& source, const LoadOptions& options, int ranks, const RankOptions& run) {
  return load_ranks(source, options, std::vector<Device>(static_cast<std::size_t>(ranks), options.device), run);
}

RankModels load_ranks(const ModelSource& source, const LoadOptions& options, std::span<const Device> devices,
                      const RankOptions& run) {
  const auto ranks = static_cast<int>(devices.size());
  if (ranks == 1) return one_rank(load_model(source, part_of(options, devices[0], {})));
  // What is wrong with the model is said once, and before a rank reads it.
  const RankModels outlines = outline_ranks(source, part_of(options, devices[0], {}), ranks);
  SymmetricStepBytes most;
  for (const RankPart& outline : outlines) most = max(most, symmetric_step_bytes(*outline.model, {.step = run.steps}));
  const auto world = std::make_shared<RankWorld>(devices, RankWorldOptions{.mode = options.tp_mode,
                                                                           .step_bytes = most,
                                                                           .deadline = run.deadline,
                                                                           .context_ranks = options.context_ranks});
  RankModels parts(devices.size());
  SharedProgress progress(options.on_progress, world->grid());
  std::atomic<bool> failed{false};
  // Of the first rank that fails, which need not be the first of which run_team hears.
  std::exception_ptr cause;
  int failed_rank = 0;
  const auto load = [&](TeamMember& member) {
    const int rank = member.rank();
    RankPart& part = parts[static_cast<std::size_t>(rank)];
    part.world = world;
    LoadOptions loading = part_of(options, devices[static_cast<std::size_t>(rank)], place_in(*world, rank));
    loading.place.alone = &world->alone(rank);
    loading.on_progress = [&](std::size_t bytes_done) {
      if (failed) throw Failure("stopped loading: another rank has failed");
      progress.update(rank, bytes_done);
    };
    try {
      part.model = load_model(source, loading);
    } catch (...) {
      if (!failed.exchange(true)) {
        cause = std::current_exception();
        failed_rank = rank;
      }
      throw;
    }
  };
  try {
    run_team(ranks, load);
  } catch (...) {
    if (cause) throw_naming_rank(failed_rank, cause);
    throw;
  }
  return parts;
}

RankModels load_launched_rank(const ModelSource& source, const LoadOptions& options, const std::vector<RankFact>& facts,
                              const RankOptions& run) {
  // What is wrong with the model is said before this rank meets the others.
  const Launch launch = read_launch();
  RankModels parts = outline_ranks(source, part_of(options, {}, {}), launch.world_size);
  Model& outline = *parts[static_cast<std::size_t>(launch.rank)].model;
  const std::shared_ptr<RankWorld> world =
      RankWorld::join({.mode = options.tp_mode,
                       .step_bytes = symmetric_step_bytes(outline, {.step = run.steps}),
                       .deadline = run.deadline},
                      facts);
  for (RankPart& part : parts) part.world = world;
  const int rank = world->own_rank();
  LoadOptions loading = part_of(options, {}, place_in(*world, rank));
  loading.tp_mode = loading.place.mode = world->mode();
  loading.on_progress = WatchedProgress(options.on_progress, world->line());
  try {
    parts[static_cast<std::size_t>(rank)].model = load_model(source, loading);
  } catch (...) {
    end_among_processes(*world);
  }
  return parts;
}

RankModels outline_ranks(const ModelSource& source, const LoadOptions& options, int ranks) {
  RankModels parts(static_cast<std::size_t>(ranks));
  const RankGrid grid = grid_of(options, ranks);
  for (int rank = 0; rank < ranks; ++rank)
    parts[static_cast<std::size_t>(rank)].model =
        outline_model(source, part_of(options, options.device, place_in(grid, rank)));
  return parts;
}

std::size_t weight_bytes(const RankModels& ranks) {
  return sum_over(ranks, [](const ModelShape& shape) { return shape.weight_bytes; });
}

std::size_t weight_bytes_per_step(const RankModels& ranks) {
  return sum_over(ranks, [](const ModelShape& shape) { return shape.weight_bytes_per_step; });
}

std::size_t available_bytes(const RankModels& ranks) {
  std::optional<std::size_t> least;
  if constexpr (kHaveCuda)
    for (const RankPart& part : ranks) {
      const Device device = part.model->device();
      if (device.kind != DeviceKind::cuda) return 0;
      const auto sharers = static_cast<std::size_t>(std::ranges::count_if(
          ranks, [&](const RankPart& other) { return other.model->device().index == device.index; }));
      const std::size_t each = cuda::memory_info(device.index).free_bytes / sharers;
      least = std::min(least.value_or(each), each);
    }
  return least.value_or(0);
}

std::size_t cache_bytes(const RankModels& ranks, int page_size, int num_pages) {
  return sum_over(ranks, [&](const ModelShape& shape) { return shape.kv_pages(page_size, num_pages).size_bytes(); });
}

}  // namespace heddle

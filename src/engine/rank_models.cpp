#include "engine/rank_models.h"

#include <atomic>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "collectives/communicator.h"
#include "engine/rank_error.h"
#include "fabric/fabric.h"
#include "fabric/shm/threads.h"
#include "models/registry.h"

namespace heddle {
namespace {

LoadOptions part_of(const LoadOptions& options, ModelRank place) {
  LoadOptions part = options;
  part.place = place;
  return part;
}

// Bytes that all ranks have read so far, for one listener.
class SharedProgress {
 public:
  SharedProgress(const std::function<void(std::size_t)>& listener, int ranks)
      : listener_(listener), done_(static_cast<std::size_t>(ranks)) {}

  void update(int rank, std::size_t bytes_done) {
    if (!listener_) return;
    const std::lock_guard lock(mutex_);
    done_[static_cast<std::size_t>(rank)] = bytes_done;
    listener_(std::accumulate(done_.begin(), done_.end(), std::size_t{0}));
  }

 private:
  const std::function<void(std::size_t)>& listener_;
  std::mutex mutex_;
  std::vector<std::size_t> done_;
};

// Fabrics and communicators of the ranks. They meet to make them, so each has a thread.
void connect(RankModels& ranks, std::chrono::nanoseconds deadline) {
  const auto size = static_cast<int>(ranks.size());
  const CommunicatorOptions options{.vendor = false};
  ShmThreads world(size, {.heap_bytes = Communicator::heap_bytes(size, {}, options), .deadline = deadline});
  Ranks team(ranks.size());
  std::iota(team.begin(), team.end(), 0);
  run_team(size, [&](TeamMember& member) {
    RankPart& part = ranks[static_cast<std::size_t>(member.rank())];
    part.fabric = world.rank(member.rank());
    ThreadPool pool(1);
    Stream stream(pool);
    part.communicator = std::make_unique<Communicator>(*part.fabric, team, stream, options);
  });
}

template <class Bytes>
std::size_t sum_over(const RankModels& ranks, const Bytes& bytes) {
  return std::accumulate(ranks.begin(), ranks.end(), std::size_t{0},
                         [&](std::size_t sum, const RankPart& part) { return sum + bytes(part.model->shape()); });
}

}  // namespace

RankPart::RankPart() = default;
RankPart::RankPart(RankPart&&) noexcept = default;
RankPart& RankPart::operator=(RankPart&&) noexcept = default;
RankPart::~RankPart() = default;

RankModels one_rank(std::unique_ptr<Model> model) {
  RankModels ranks(1);
  ranks[0].model = std::move(model);
  return ranks;
}

RankModels load_ranks(const ModelSource& source, const LoadOptions& options, int ranks,
                      std::chrono::nanoseconds deadline) {
  if (ranks == 1) return one_rank(load_model(source, part_of(options, {})));
  if (options.device.kind != DeviceKind::cpu)
    throw_error<InputError>("{} ranks on {}: several ranks run on the CPU only so far", ranks, name_of(options.device));
  outline_ranks(source, options, ranks);  // what is wrong with the model is said once, and before a rank reads it
  RankModels parts(static_cast<std::size_t>(ranks));
  connect(parts, deadline);
  SharedProgress progress(options.on_progress, ranks);
  std::atomic<bool> failed{false};
  run_team(ranks, [&](TeamMember& member) {
    const int rank = member.rank();
    RankPart& part = parts[static_cast<std::size_t>(rank)];
    LoadOptions loading = part_of(options, {.rank = rank, .ranks = ranks, .communicator = part.communicator.get()});
    loading.on_progress = [&](std::size_t bytes_done) {
      if (failed) throw Failure("stopped loading: another rank has failed");
      progress.update(rank, bytes_done);
    };
    try {
      part.model = load_model(source, loading);
    } catch (...) {
      // Only the first names a cause; run_team rethrows that one.
      const bool is_first = !failed.exchange(true);
      if (is_first) throw_naming_rank(rank, std::current_exception());
      throw;
    }
  });
  return parts;
}

RankModels outline_ranks(const ModelSource& source, const LoadOptions& options, int ranks) {
  RankModels parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    parts[static_cast<std::size_t>(rank)].model =
        outline_model(source, part_of(options, {.rank = rank, .ranks = ranks}));
  return parts;
}

std::size_t weight_bytes(const RankModels& ranks) {
  return sum_over(ranks, [](const ModelShape& shape) { return shape.weight_bytes; });
}

std::size_t weight_bytes_per_step(const RankModels& ranks) {
  return sum_over(ranks, [](const ModelShape& shape) { return shape.weight_bytes_per_step; });
}

std::size_t cache_bytes(const RankModels& ranks, int page_size, int num_pages) {
  return sum_over(ranks, [&](const ModelShape& shape) { return shape.kv_pages(page_size, num_pages).size_bytes(); });
}

}  // namespace heddle

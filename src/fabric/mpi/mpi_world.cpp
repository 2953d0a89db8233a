#include "fabric/mpi/mpi_world.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/atomics.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/symmetric_heap.h"
#include "fabric/wait_error.h"

namespace heddle {
namespace {

// MPI counts in int, and a deadline holds for a piece, not for a transfer of gigabytes.
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

constexpr int kNeverSentTag = 0;  // a probe that finds a message makes no progress
constexpr int kExchangeTag = 1;
constexpr int kFirstBarrierTag = 2;
constexpr int kMostRounds = 32;

constexpr std::uint32_t kLooksBeforeClock = 64;
// A wait looks as often as this, some milliseconds long, before it sleeps between looks. Where ranks share cores it
// sleeps soon: whom it waits for needs the core.
constexpr std::uint32_t kLooksBeforeSleep = 4096;
constexpr std::uint32_t kLooksOnSharedCores = 16;
constexpr std::chrono::microseconds kSleep{20};
constexpr std::chrono::microseconds kProgressOverNetwork{100};
constexpr std::chrono::microseconds kProgressInMemory{1000};

// FNV-1a
class Hash {
 public:
  Hash& add(const void* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
    return *this;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::uint32_t looks_before_sleep(const Launch& launch) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<unsigned>(launch.num_local_ranks) > cores ? kLooksOnSharedCores : kLooksBeforeSleep;
}

bool on_one_machine(const Launch& launch) {
  return launch.num_local_ranks == launch.world_size;
}

// What a message of a barrier says.
struct BarrierMessage {
  std::uint64_t team = 0;
  std::uint64_t count = 0;
};

}  // namespace

MpiWorld::MpiWorld(const Launch& launch, const FabricOptions& options)
    : launch_(launch),
      heap_bytes_(options.heap_bytes),
      exceptions_at_start_(std::uncaught_exceptions()),
      looks_before_sleep_(looks_before_sleep(launch)),
      watch_({.job = Hash().add(launch.job_key.data(), launch.job_key.size()).value(),
              .rank = launch.rank,
              .world_size = launch.world_size,
              .one_machine = on_one_machine(launch),
              .deadline = options.deadline}) {
  try {
    open();
  } catch (...) {
    if (watch_.in_trouble()) abandon_mpi();
    throw;
  }
  progress_ = std::jthread([this](const std::stop_token& stop) { make_progress(stop); });
}

void MpiWorld::open() {
  begin_mpi(launch_, watch_);
  {
    const RankWatch::Call call(watch_, "MPI_Comm_dup", -1);
    check_mpi("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &messages_));
  }
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
  int* largest_tag = nullptr;
  int known = 0;
  if (MPI_Comm_get_attr(messages_, MPI_TAG_UB, &largest_tag, &known) == MPI_SUCCESS && known != 0)
    largest_tag_ = *largest_tag;
  const RankContact own = watch_.own_contact();
  std::vector<RankContact> contacts(static_cast<std::size_t>(size()));
  {
    const RankWatch::Call call(watch_, "MPI_Allgather", -1);
    check_mpi("MPI_Allgather",
              MPI_Allgather(&own, sizeof own, MPI_BYTE, contacts.data(), sizeof own, MPI_BYTE, messages_));
  }
  watch_.begin(std::move(contacts));

  const std::vector<std::uint64_t> heaps = exchange(heap_bytes_, "open");
  for (int other = 0; other < size(); ++other) {
    const std::uint64_t theirs = heaps[static_cast<std::size_t>(other)];
    require(theirs == heaps[0], "mpi: rank 0 wants a heap of {} bytes, rank {} one of {}", heaps[0], other, theirs);
  }
  open_window();
}

void MpiWorld::open_window() {
  // With pages of its own, each rank's heap lies near the cores that use it.
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  MPI_Info_set(info, "same_size", "true");
  MPI_Info_set(info, "same_disp_unit", "true");
  void* base = nullptr;
  int code = MPI_SUCCESS;
  {
    const RankWatch::Call call(watch_, "MPI_Win_allocate", -1);
    code = MPI_Win_allocate(static_cast<MPI_Aint>(heap_bytes_ + SymmetricHeap::kAlignment), 1, info, messages_, &base,
                            &window_);
  }
  MPI_Info_free(&info);
  if (code != MPI_SUCCESS)
    throw_error<Failure>(
        "{}; a heap has {} bytes; between machines, windows need `--mca osc pt2pt`, as `heddle launch` "
        "sets it",
        mpi_error("MPI_Win_allocate", code), heap_bytes_);
  MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  const auto misaligned = reinterpret_cast<std::uintptr_t>(base) % SymmetricHeap::kAlignment;
  const std::size_t shift = misaligned == 0 ? 0 : SymmetricHeap::kAlignment - misaligned;
  heap_ = static_cast<std::byte*>(base) + shift;
  std::memset(heap_, 0, heap_bytes_);
  {
    const RankWatch::Call call(watch_, "MPI_Win_lock_all", -1);
    check_mpi("MPI_Win_lock_all", MPI_Win_lock_all(MPI_MODE_NOCHECK, window_));
  }
  MPI_Win_sync(window_);
  shifts_ = exchange(shift, "open");  // and all heaps are zero
}

MpiWorld::~MpiWorld() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (unwinding && !watch_.in_trouble())
    watch_.declare(Beat::failure, fmt::format("rank {} has ended with an error of its own", rank()));
  try {
    throw_if_in_trouble();
    close();
  } catch (const std::exception& error) {
    if (!unwinding) log_warning("mpi: rank {}: {}", rank(), error.what());
    abandon_mpi();  // and leave behind what is MPI's: its calls might wait for a rank that is gone
  }
  progress_ = {};
}

void MpiWorld::close() {
  fence();
  exchange(0, "close");
  watch_.end();
  progress_ = {};
  const RankWatch::Call call(watch_, "MPI_Win_free", -1);
  check_mpi("MPI_Win_unlock_all", MPI_Win_unlock_all(window_));
  check_mpi("MPI_Win_free", MPI_Win_free(&window_));
  check_mpi("MPI_Comm_free", MPI_Comm_free(&messages_));
}

void MpiWorld::throw_if_in_trouble() const {
  if (watch_.in_trouble()) watch_.throw_trouble();
}

void MpiWorld::make_progress(const std::stop_token& stop) {
  const auto pause = on_one_machine(launch_) ? kProgressInMemory : kProgressOverNetwork;
  while (!stop.stop_requested() && !watch_.in_trouble()) {
    std::this_thread::sleep_for(pause);
    if (num_waiting_ > 0) continue;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || watch_.in_trouble()) continue;
    progress();
  }
}

void MpiWorld::progress() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, kNeverSentTag, messages_, &found, MPI_STATUS_IGNORE);
}

void MpiWorld::check(const char* call, int code, int peer) {
  if (code == MPI_SUCCESS) return;
  const std::string known = watch_.what_is_known_of(peer);
  watch_.declare(Beat::failure, fmt::format("rank {}, to or from rank {}: {}{}{}", rank(), peer, mpi_error(call, code),
                                            known.empty() ? "" : "; ", known));
  watch_.throw_trouble();
}

void MpiWorld::await(int from, Tag tag, std::uint64_t target, FunctionRef<std::uint64_t()> look) {
  struct Waiting {
    explicit Waiting(MpiWorld& of) : world(of) { ++world.num_waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      --world.num_waiting_;
      if (said) world.watch_.say_not_waiting();
    }
    MpiWorld& world;
    bool said = false;
  } waiting(*this);
  const auto limit = static_cast<std::uint64_t>(watch_.deadline().count());
  std::uint64_t start = 0;
  for (std::uint64_t looks = 1;; ++looks) {
    throw_if_in_trouble();
    std::uint64_t observed;
    {
      const std::lock_guard lock(mutex_);
      observed = look();
    }
    if (observed >= target) return;
    if (looks == kLooksBeforeClock) {
      start = watch_.now();
      waiting.said = true;
      watch_.say_waiting(from, tag);
    }
    if (looks > kLooksBeforeClock && watch_.now() - start > limit) {
      WaitRecord record{.rank = rank(), .from = from, .expected = target, .observed = observed, .tag = tag};
      watch_.declare(Beat::timeout, describe(record, limit, watch_.what_is_known_of(from)));
      watch_.throw_trouble();
    }
    if (looks > looks_before_sleep_) {
      std::this_thread::sleep_for(kSleep);
    } else {
      std::this_thread::yield();
    }
  }
}

void MpiWorld::await(MPI_Request& request, int from, Tag tag) {
  await(from, tag, 1, [&] {
    int done = 0;
    check("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE), from);
    return static_cast<std::uint64_t>(done != 0);
  });
}

void MpiWorld::put(int peer, std::size_t offset, const void* source, std::size_t bytes) {
  throw_if_in_trouble();
  if (peer == rank()) {
    if (bytes != 0) std::memmove(heap_ + offset, source, bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
    const int piece = static_cast<int>(std::min(kPieceBytes, bytes - done));
    const std::lock_guard lock(mutex_);
    const RankWatch::Call call(watch_, "MPI_Put", peer);
    check("MPI_Put",
          MPI_Put(static_cast<const std::byte*>(source) + done, piece, MPI_BYTE, peer,
                  displacement(peer, offset + done), piece, MPI_BYTE, window_),
          peer);
    check("MPI_Win_flush_local", MPI_Win_flush_local(peer, window_), peer);
    if (std::find(dirty_.begin(), dirty_.end(), peer) == dirty_.end()) dirty_.push_back(peer);
  }
}

void MpiWorld::get(int peer, void* destination, std::size_t offset, std::size_t bytes) {
  throw_if_in_trouble();
  if (peer == rank()) {
    if (bytes != 0) std::memmove(destination, heap_ + offset, bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
    const int piece = static_cast<int>(std::min(kPieceBytes, bytes - done));
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::lock_guard lock(mutex_);
      const RankWatch::Call call(watch_, "MPI_Rget", peer);
      check("MPI_Rget",
            MPI_Rget(static_cast<std::byte*>(destination) + done, piece, MPI_BYTE, peer,
                     displacement(peer, offset + done), piece, MPI_BYTE, window_, &request),
            peer);
    }
    await(request, peer, "get");
  }
}

void MpiWorld::flush_dirty() {
  for (const int peer : dirty_) {
    const RankWatch::Call call(watch_, "MPI_Win_flush", peer);
    check("MPI_Win_flush", MPI_Win_flush(peer, window_), peer);
  }
  dirty_.clear();
}

void MpiWorld::signal(int peer, std::size_t offset, std::uint64_t value, SignalKind kind) {
  throw_if_in_trouble();
  const std::lock_guard lock(mutex_);
  flush_dirty();
  const RankWatch::Call call(watch_, "MPI_Accumulate", peer);
  check("MPI_Accumulate",
        MPI_Accumulate(&value, 1, MPI_UINT64_T, peer, displacement(peer, offset), 1, MPI_UINT64_T,
                       kind == SignalKind::set ? MPI_REPLACE : MPI_SUM, window_),
        peer);
  check("MPI_Win_flush_local", MPI_Win_flush_local(peer, window_), peer);
  dirty_.push_back(peer);
}

void MpiWorld::wait(int from, std::size_t offset, std::uint64_t target, Tag tag) {
  const auto* flag = reinterpret_cast<const std::uint64_t*>(heap_ + offset);
  await(from, tag, target, [&] {
    const std::uint64_t observed = atomic_load(flag);
    if (observed >= target) {
      MPI_Win_sync(window_);
      return observed;
    }
    progress();
    return observed;
  });
}

void MpiWorld::fence() {
  throw_if_in_trouble();
  const std::lock_guard lock(mutex_);
  flush_dirty();
}

// Teams that meet at once had best not share tags; where two do, their messages still say whose they are.
int MpiWorld::barrier_tag(std::uint64_t team, int round) const {
  const int teams = (largest_tag_ - kFirstBarrierTag + 1) / kMostRounds;
  return kFirstBarrierTag + static_cast<int>((team >> 32) % static_cast<std::uint64_t>(teams)) * kMostRounds + round;
}

void MpiWorld::barrier(std::span<const int> team) {
  fence();
  const int members = static_cast<int>(team.size());
  const int index = static_cast<int>(std::find(team.begin(), team.end(), rank()) - team.begin());
  const std::uint64_t hash = Hash().add(team.data(), team.size_bytes()).value();
  std::uint64_t count;
  {
    const std::lock_guard lock(mutex_);
    count = ++barriers_entered_[hash];
  }
  // In round k each tells the rank 2^k further on, and hears of the one 2^k before.
  for (int distance = 1, round = 0; distance < members; distance *= 2, ++round) {
    const int to = team[static_cast<std::size_t>((index + distance) % members)];
    const int from = team[static_cast<std::size_t>((index - distance + members) % members)];
    const int tag = barrier_tag(hash, round);
    const BarrierMessage own{hash, count};
    BarrierMessage other;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    {
      const std::lock_guard lock(mutex_);
      const RankWatch::Call call(watch_, "MPI_Isend", to);
      check("MPI_Irecv", MPI_Irecv(&other, sizeof other, MPI_BYTE, from, tag, messages_, &requests[0]), from);
      check("MPI_Isend", MPI_Isend(&own, sizeof own, MPI_BYTE, to, tag, messages_, &requests[1]), to);
    }
    await(requests[0], from, "barrier");
    await(requests[1], to, "barrier");
    if (other.team != hash || other.count != count) {
      watch_.declare(
          Beat::failure,
          fmt::format("ranks {} and {} disagree about a barrier of {} ranks: it is the {}th of this team for "
                      "one and the {}th for the other",
                      rank(), from, members, count, other.count));
      watch_.throw_trouble();
    }
  }
  const std::lock_guard lock(mutex_);
  MPI_Win_sync(window_);
}

std::vector<std::uint64_t> MpiWorld::exchange(std::uint64_t own, Tag tag) {
  throw_if_in_trouble();
  const auto num_ranks = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> values(num_ranks, own);
  std::vector<MPI_Request> receives(num_ranks, MPI_REQUEST_NULL);
  std::vector<MPI_Request> sends(num_ranks, MPI_REQUEST_NULL);
  {
    const std::lock_guard lock(mutex_);
    const RankWatch::Call call(watch_, "MPI_Isend", -1);
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      const auto i = static_cast<std::size_t>(other);
      check("MPI_Irecv", MPI_Irecv(&values[i], 1, MPI_UINT64_T, other, kExchangeTag, messages_, &receives[i]), other);
      check("MPI_Isend", MPI_Isend(&own, 1, MPI_UINT64_T, other, kExchangeTag, messages_, &sends[i]), other);
    }
  }
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    await(receives[static_cast<std::size_t>(other)], other, tag);
    await(sends[static_cast<std::size_t>(other)], other, tag);
  }
  return values;
}

}  // namespace heddle

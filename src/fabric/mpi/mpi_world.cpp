#include "fabric/mpi/mpi_world.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "device/atomics.h"
#include "device/spin.h"
#include "device/wait_watch.h"
#include "fabric/looks_before_yield.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/shm/heap_file.h"
#include "fabric/symmetric_heap.h"
#include "machine/cpu.h"

namespace heddle {
namespace {

constexpr int kExchangeTag = 0;
constexpr int kFirstBarrierTag = 1;
constexpr int kMostRounds = 32;

constexpr std::uint32_t kLooksBeforeClock = 64;
// An MPI call takes as long as so many looks at a flag.
constexpr std::uint32_t kLooksOfCall = 128;
// A wait sleeps only when nothing has come for so long that some microseconds more are nothing.
constexpr std::chrono::milliseconds kAwakeFor{100};
constexpr std::chrono::microseconds kSleep{20};
// A rank that computes looks so often whether others want something of its heap.
constexpr std::chrono::microseconds kBetweenServing{100};
constexpr std::chrono::milliseconds kLookForTrouble{5};
// An answer waits for others for one such part of the deadline: the rest is for its first bytes, on a link that all share.
constexpr int kPartOfDeadline = 4;

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

// HEDDLE_MPI_MEMORY: "window" has ranks of one machine reach each other's memory as those of several do.
bool wants_shared_heaps() {
  const char* const chosen = std::getenv("HEDDLE_MPI_MEMORY");
  const std::string_view choice = chosen != nullptr ? chosen : "shared";
  if (choice != "shared" && choice != "window")
    throw_error<InputError>("HEDDLE_MPI_MEMORY is \"{}\", expected \"shared\" or \"window\"", printable(choice, 40));
  return choice == "shared";
}

// What a message of a barrier says.
struct BarrierMessage {
  std::uint64_t team = 0;
  std::uint64_t count = 0;
};

}  // namespace

MpiWorld::MpiWorld(const Launch& launch, const FabricOptions& options, std::byte* heap)
    : launch_(launch),
      heap_bytes_(options.heap_bytes),
      exceptions_at_start_(std::uncaught_exceptions()),
      looks_before_yield_(looks_before_yield(launch.num_local_ranks)),
      watch_({.job = Hash().add(launch.job_key.data(), launch.job_key.size()).value(),
              .rank = launch.rank,
              .world_size = launch.world_size,
              .one_machine = launch.on_one_machine(),
              .deadline = options.deadline,
              .join_deadline = options.limit_to_join()}) {
  heap_ = heap;
  try {
    open();
    start_progress();
    watch_.say_joined();
  } catch (...) {  // the destructor will not run
    progress_ = {};
    if (watch_.in_trouble()) leave_behind();
    throw;
  }
}

// The others may count on this rank by now, so they are told where the system gives no thread.
void MpiWorld::start_progress() try {
  progress_ = std::jthread([this](const std::stop_token& stop) {
    if (shared_)
      pass_on_trouble(stop);
    else
      serve_others(stop);
  });
} catch (const std::system_error& error) {
  watch_.declare(Beat::failure,
                 fmt::format("rank {} cannot start the thread that serves the others: {}", rank(), error.what()));
  watch_.throw_trouble();
}

void MpiWorld::open() {
  begin_mpi(launch_, watch_);
  {
    const RankWatch::Call call(watch_, "MPI_Comm_dup", -1);
    check_mpi("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &messages_));
    check_mpi("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &collectives_));
  }
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN);
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
  if (heap_ != nullptr) return serve_own_heap();
  if (share_heaps()) return;
  open_own_heap();
  serve_own_heap();
}

bool MpiWorld::share_heaps() {
  const bool want = wants_shared_heaps() && launch_.on_one_machine() && size() <= kMaxPeers;
  // What rank 0 says holds for all, so all decide alike.
  const auto of_rank_0 = [&](std::uint64_t value) { return exchange(value, "open")[0]; };
  if (const std::vector<std::uint64_t> wishes = exchange(want ? 1 : 0, "open");
      std::find(wishes.begin(), wishes.end(), 0) != wishes.end())
    return false;
  const std::uint64_t available =
      of_rank_0(rank() == 0 ? static_cast<std::uint64_t>(discover_cpu().available_memory_bytes) : 0);
  require_memory_for_heaps("mpi", size(), heap_bytes_, available);
  std::optional<OpenFile> file;
  SharedHeapsFile where;
  if (rank() == 0) {
    file = SharedHeaps::make(size(), heap_bytes_);
    if (file) where = SharedHeaps::place_of(*file);
  }
  where = {of_rank_0(where.process), of_rank_0(where.file), of_rank_0(where.inode)};
  shared_ = SharedHeaps::open(where, rank(), size(), heap_bytes_);
  const std::vector<std::uint64_t> opened = exchange(shared_ ? 1 : 0, "open");
  if (std::find(opened.begin(), opened.end(), 0) != opened.end()) {
    shared_.reset();
    return false;
  }
  heap_ = shared_->heap(rank());
  return true;
}

// Ranks of a machine are consecutive unless mpirun was told otherwise; then they use messages.
void MpiWorld::share_heaps_of_machine() {
  const auto local = [&](const std::vector<std::uint64_t>& values) {
    return std::span(values).subspan(static_cast<std::size_t>(first_near_),
                                     static_cast<std::size_t>(launch_.num_local_ranks));
  };
  const int first = rank() - launch_.local_rank;
  const bool fits = first >= 0 && first + launch_.num_local_ranks <= size();
  if (fits) first_near_ = first;
  // What tells a rank's machine: its first rank and their number.
  const auto machine = static_cast<std::uint64_t>(first_near_) << 32 | static_cast<unsigned>(launch_.num_local_ranks);
  const std::vector<std::uint64_t> machines = exchange(machine, "open");
  const bool want = fits && wants_shared_heaps() && launch_.num_local_ranks > 1 &&
                    std::ranges::all_of(local(machines), [&](std::uint64_t other) { return other == machine; });
  const bool is_first = rank() == first_near_;
  const std::vector<std::uint64_t> available =
      exchange(is_first ? static_cast<std::uint64_t>(discover_cpu().available_memory_bytes) : 0, "open");
  std::optional<OpenFile> file;
  SharedHeapsFile where;
  if (want && is_first) {
    require_memory_for_heaps("mpi", launch_.num_local_ranks, heap_bytes_,
                             available[static_cast<std::size_t>(first_near_)]);
    file = SharedHeaps::make(launch_.num_local_ranks, heap_bytes_);
    if (file) where = SharedHeaps::place_of(*file);
  }
  const auto of_first = [&](std::uint64_t value) {
    return exchange(value, "open")[static_cast<std::size_t>(first_near_)];
  };
  where = {of_first(where.process), of_first(where.file), of_first(where.inode)};
  if (want) near_ = SharedHeaps::open(where, rank() - first_near_, launch_.num_local_ranks, heap_bytes_);
  const std::vector<std::uint64_t> opened = exchange(near_ ? 1 : 0, "open");
  if (!fits || std::ranges::count(local(opened), 0) > 0) near_.reset();
}

void MpiWorld::open_own_heap() {
  share_heaps_of_machine();
  if (near_) {
    heap_ = near_->heap(rank() - first_near_);
  } else {
    own_heap_ = std::make_unique<Mapping>(Mapping::anonymous(std::max(heap_bytes_, std::size_t{1})));
    heap_ = own_heap_->data();
  }
}

void MpiWorld::serve_own_heap() {
  {
    const RankWatch::Call call(watch_, "MPI_Comm_dup", -1);
    check_mpi("MPI_Comm_dup", MPI_Comm_dup(messages_, &memory_));
  }
  MPI_Comm_set_errhandler(memory_, MPI_ERRORS_RETURN);
  const auto reject = [this](int from, const std::string& fault) {
    watch_.declare(Beat::failure, fmt::format("rank {} rejects what rank {} has sent: {}", rank(), from, fault));
    watch_.throw_trouble();
  };
  server_ = std::make_unique<HeapServer>(memory_, std::span(heap_, heap_bytes_), watch_.deadline() / kPartOfDeadline,
                                         check_, reject);
}

void MpiWorld::clear(std::size_t offset, std::size_t bytes) {
  const std::lock_guard lock(mutex_);  // under which messages of others write here
  std::memset(heap_ + offset, 0, bytes);
}

void MpiWorld::abandon(std::string_view cause) {
  if (watch_.in_trouble()) return;
  const std::int32_t process = launch_.on_one_machine() ? ::getpid() : 0;
  watch_.declare(Beat::failure, cause.empty() ? ended_by_exception(rank(), process) : std::string(cause));
}

MpiWorld::~MpiWorld() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (unwinding) abandon({});
  try {
    throw_if_in_trouble();
    close();
  } catch (const std::exception& error) {
    if (!unwinding) log_warning("mpi: rank {}: {}", rank(), error.what());
    progress_ = {};
    leave_behind();
  }
}

// What is MPI's: its calls might wait for a rank that is gone. With it the heap and the server's buffers, on purpose:
// receives into them are still posted, and a network may write to them though nobody here calls MPI. Into a caller's
// memory, the destination of a get, nothing is written without such a call: a BulkTransfer's messages are copied there
// when they are received.
void MpiWorld::leave_behind() {
  abandon_mpi();
  static_cast<void>(server_.release());
  static_cast<void>(own_heap_.release());
}

void MpiWorld::close() {
  confirm_all_threads();
  watch_.say_closed();
  closing_ = true;  // the others may work on for as long as they live
  exchange(0, "close");
  progress_ = {};
  if (server_) await(rank(), "close", 1, [&] { return static_cast<std::uint64_t>(!server_->has_open_transfers()); });
  watch_.end();
  const RankWatch::Call call(watch_, "MPI_Comm_free", -1);
  if (server_) {
    server_->close();
    check_mpi("MPI_Comm_free", MPI_Comm_free(&memory_));
  }
  check_mpi("MPI_Comm_free", MPI_Comm_free(&collectives_));
  check_mpi("MPI_Comm_free", MPI_Comm_free(&messages_));
}

WaitLimit MpiWorld::wait_limit() const {
  return {.record = shared_ ? &shared_->record() : nullptr,
          .nanoseconds = static_cast<std::uint64_t>(watch_.deadline().count()),
          .looks_before_yield = looks_before_yield_};
}

void MpiWorld::throw_if_in_trouble() {
  if (shared_ && atomic_load(&shared_->record().state) != WaitRecord::empty) put_record_into_words();
  if (watch_.in_trouble()) watch_.throw_trouble();
}

// A wait of some rank, inside a body perhaps, has given up. Whose wait it was says so in words to all; only if nothing
// comes, because that rank is gone, does another.
void MpiWorld::put_record_into_words() {
  const WaitRecord& record = shared_->record();
  const auto complete = [&] { return atomic_load(&record.state) == WaitRecord::complete; };
  for (int i = 0; i < 500 && !watch_.in_trouble() && !(complete() && record.rank == rank()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (watch_.in_trouble()) return;
  watch_.declare(Beat::timeout,
                 complete() ? what_gave_up(record, wait_limit().nanoseconds, watch_.what_is_known_of(record.from))
                            : "another rank has given up, and did not say why");
}

// Between those who wait in memory, and look at the record alone, and what is said by messages.
void MpiWorld::pass_on_trouble(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(kLookForTrouble);
    if (atomic_load(&shared_->record().state) != WaitRecord::empty) put_record_into_words();
    if (!watch_.in_trouble()) continue;
    report(shared_->record(), {rank(), rank(), "lost a rank"}, 0, 0);
    return;
  }
}

void MpiWorld::serve_others(const std::stop_token& stop) try {
  auto pause = kBetweenServing;
  while (!stop.stop_requested() && !watch_.in_trouble()) {
    std::this_thread::sleep_for(pause);
    if (num_waiting_ > 0) continue;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || watch_.in_trouble()) continue;
    const bool more = server_->serve();
    pause = more || server_->has_open_transfers() ? kSleep : kBetweenServing;
  }
} catch (const std::exception&) {  // is the world's trouble by now, and thrown by whoever calls next
}

void MpiWorld::check(const char* call, int code, int peer) {
  if (code == MPI_SUCCESS) return;
  const std::string known = watch_.what_is_known_of(peer);
  watch_.declare(Beat::failure, fmt::format("rank {}, to or from rank {}: {}{}{}", rank(), peer, mpi_error(call, code),
                                            known.empty() ? "" : "; ", known));
  watch_.throw_trouble();
}

std::unique_lock<std::mutex> MpiWorld::lock_mpi() {
  std::unique_lock lock(mutex_);
  if (watch_.in_trouble()) watch_.throw_trouble();
  return lock;
}

void MpiWorld::await(int from, Tag tag, std::uint64_t target, FunctionRef<std::uint64_t()> look, DeadlineOf of) try {
  await_or_throw(from, tag, target, look, of);
} catch (const std::exception& error) {
  if (!watch_.in_trouble()) watch_.declare(Beat::failure, fmt::format("rank {}: {}", rank(), error.what()));
  const std::lock_guard lock(mutex_);  // a thread that is in MPI has seen no trouble: until it comes out
  throw;
}

void MpiWorld::await_or_throw(int from, Tag tag, std::uint64_t target, FunctionRef<std::uint64_t()> look,
                              DeadlineOf of) {
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
  const std::uint64_t limit =
      closing_ ? std::numeric_limits<std::uint64_t>::max() : static_cast<std::uint64_t>(watch_.limit().count());
  std::uint64_t start = 0, observed_before = 0;
  std::chrono::steady_clock::time_point awake_until;
  for (std::uint64_t looks = 1;; ++looks) {
    throw_if_in_trouble();
    std::uint64_t observed;
    {
      const std::unique_lock lock = lock_mpi();
      observed = look();
      if (observed < target && server_) server_->serve();
    }
    if (observed >= target) return;
    const bool moved = std::exchange(observed_before, observed) != observed;
    if (moved && of == DeadlineOf::step) start = watch_.now();
    if (looks == kLooksBeforeClock) {
      start = watch_.now();
      awake_until = std::chrono::steady_clock::now() + kAwakeFor;
      waiting.said = true;
      watch_.say_waiting(from, tag);
    }
    if (looks > kLooksBeforeClock && watch_.now() - start > limit) {
      const WaitRecord record{.state = WaitRecord::complete,
                              .rank = rank(),
                              .from = from,
                              .expected = target,
                              .observed = observed,
                              .tag = tag};
      watch_.declare(Beat::timeout, what_gave_up(record, limit, watch_.what_is_known_of(from)));
      watch_.throw_trouble();
    }
    if (looks < looks_before_yield_ / kLooksOfCall) continue;
    if (looks > kLooksBeforeClock && std::chrono::steady_clock::now() > awake_until) {
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
      const std::unique_lock lock = lock_mpi();
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
}

std::vector<std::uint64_t> MpiWorld::exchange(std::uint64_t own, Tag tag) {
  throw_if_in_trouble();
  const auto num_ranks = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> values(num_ranks, own);
  std::vector<MPI_Request> receives(num_ranks, MPI_REQUEST_NULL);
  std::vector<MPI_Request> sends(num_ranks, MPI_REQUEST_NULL);
  {
    const std::unique_lock lock = lock_mpi();
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

#include "fabric/shm/processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/atomics.h"
#include "fabric/process_state.h"
#include "fabric/shm/heap_file.h"
#include "fabric/shm/shared_object.h"
#include "fabric/shm/shm_fabric.h"
#include "machine/cpu.h"

namespace heddle {
namespace {

// One process's way into a run.
//
// The control block is a POSIX shared memory object of about 1.2 MB. The heaps are an unnamed file (memfd) of rank 0,
// which the others open through /proc, because /dev/shm has only 64 MB in many containers. Each rank touches its own
// pages here, so that too little memory is an error now and not a signal later.
class Joining {
 public:
  Joining(const Launch& launch, const FabricOptions& options)
      : launch_(launch),
        options_(options),
        heap_bytes_(check_shm_world(launch.world_size, options)),
        deadline_(Deadline::after(std::chrono::duration_cast<Deadline::Clock::duration>(options.limit_to_join()))),
        name_(fmt::format("/heddle-{}-{}", getuid(), launch.job_key)) {}

  std::unique_ptr<Fabric> join() {
    const OpenFile own_heaps = launch_.rank == 0 ? make_heaps_or_tell() : OpenFile(-1);
    SharedObject object = launch_.rank == 0 ? found(own_heaps) : find();
    Mapping pages = map(object);
    ShmControl& control = control_in(pages);
    try {
      take_rank(control);
      auto monitor = std::make_unique<Monitor>(control, launch_.rank, launch_.world_size, options_);
      Mapping heaps = open_heaps(control);
      wait_for_all(control, object);
      auto world = std::make_shared<ShmWorld>(std::move(pages), std::move(heaps), launch_.world_size);
      return std::make_unique<ShmFabric>(std::move(world), launch_.rank, options_, std::move(monitor));
    } catch (const std::exception& error) {
      // The others would wait for this rank otherwise. If they know already, this says nothing new.
      declare_trouble(control, Trouble::failure, named(launch_.rank), named(launch_.rank),
                      fmt::format("{}: {}", name_of_rank(named(launch_.rank), getpid()), error.what()));
      throw;
    }
  }

 private:
  static ShmControl& control_in(const Mapping& pages) { return *reinterpret_cast<ShmControl*>(pages.data()); }

  static Mapping map(const SharedObject& object) {
    return Mapping::of_file(object.file(), sizeof(ShmControl), "the ranks' control block");
  }

  // By which errors name a rank.
  int named(int rank) const { return options_.first_rank + rank; }

  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  static bool alive(const RankSlot& slot) {
    return slot.process != 0 && start_time_of_process(slot.process) == slot.start_time;
  }

  std::size_t all_heaps_bytes() const { return heap_bytes_ * static_cast<std::size_t>(launch_.world_size); }

  // Rank 0's.
  OpenFile make_heaps() const {
    require_memory_for_heaps("shm", launch_.world_size, heap_bytes_,
                             static_cast<std::size_t>(discover_cpu().available_memory_bytes));
    return make_heap_file(all_heaps_bytes());
  }

  // What is wrong with the options only rank 0 finds out. It founds a run without heaps to tell the others, and waits
  // until they have come to read it.
  OpenFile make_heaps_or_tell() const {
    try {
      return make_heaps();
    } catch (const InputError& error) {
      const SharedObject object = found(OpenFile(-1));
      const Mapping pages = map(object);
      ShmControl& control = control_in(pages);
      declare_trouble(control, Trouble::input, 0, 0, error.what());
      const auto has_come = [&](int rank) { return atomic_load(&control.ranks[rank].state) != RankSlot::absent; };
      for (int rank = 1; rank < launch_.world_size; ++rank)
        while (!has_come(rank) && !deadline_.passed()) pause();
      throw;
    }
  }

  // Rank 0 founds the run: makes the object and says in it what the others have to agree with.
  SharedObject found(const OpenFile& heaps) const {
    while (true) {
      if (std::optional<SharedObject> object = SharedObject::create(name_, sizeof(ShmControl))) {
        const Mapping pages = map(*object);
        ShmControl& control = control_in(pages);
        control.world_size = static_cast<std::uint64_t>(launch_.world_size);
        control.heap_bytes = heap_bytes_;
        control.first_rank = options_.first_rank;
        control.heap_process = getpid();
        control.heap_file = heaps.number();
        control.ranks[0].start_time = start_time_of_process(getpid());
        control.ranks[0].process = getpid();
        atomic_store(&control.magic, ShmControl::kMagic);
        return std::move(*object);
      }
      // One of the same key: left behind by processes that were killed on their way in, unless its rank 0 lives.
      if (std::optional<SharedObject> other = SharedObject::open(name_, sizeof(ShmControl))) {
        const Mapping pages = map(*other);
        const RankSlot& founder = control_in(pages).ranks[0];
        if (alive(founder) && founder.process != getpid()) {
          other->keep_name();
          throw_error<InvalidArgument>("two processes say that they are rank {} of job {}: {} and {}", named(0),
                                       launch_.job_key, founder.process, getpid());
        }
      }
      if (deadline_.passed()) throw_error<Failure>("cannot make the shared memory object {}: it is there", name_);
      pause();
    }
  }

  // The others look for what rank 0 founds.
  SharedObject find() const {
    std::int32_t dead_founder = 0;
    while (!deadline_.passed()) {
      if (std::optional<SharedObject> object = SharedObject::open(name_, sizeof(ShmControl))) {
        const Mapping pages = map(*object);
        const ShmControl& control = control_in(pages);
        const std::uint64_t magic = atomic_load(&control.magic);
        if (magic == ShmControl::kMagic && alive(control.ranks[0])) return std::move(*object);
        // Rank 0 is about to write, or to replace what dead processes have left.
        if (magic == ShmControl::kMagic) dead_founder = control.ranks[0].process;
        object->keep_name();
        if (magic != 0 && magic != ShmControl::kMagic)
          throw_error<Failure>("rank {} runs another version of heddle than rank {}", named(0), named(launch_.rank));
      }
      pause();
    }
    if (dead_founder != 0) {
      const std::optional<SharedObject> left_behind = SharedObject::open(name_, sizeof(ShmControl));  // and removes it
      throw_error<Failure>("rank {} (process {}) has ended, or runs in another container", named(0), dead_founder);
    }
    throw_error<Timeout>("rank {} has not started: rank {} looked {:.1f} s for job {}", named(0), named(launch_.rank),
                         std::chrono::duration<double>(options_.limit_to_join()).count(), launch_.job_key);
  }

  [[noreturn]] void refuse(ShmControl& control, const std::string& text) const {
    declare_trouble(control, Trouble::invalid_argument, named(launch_.rank), named(launch_.rank), text);
    throw_trouble(control);
  }

  void take_rank(ShmControl& control) const {
    const int rank = launch_.rank;
    if (control.first_rank != options_.first_rank)
      refuse(control,
             fmt::format("the ranks of a machine do not follow each other in this run: rank {} is the {}th of the "
                         "machine that begins with rank {}; fill one machine after the other (mpirun --map-by "
                         "slot)",
                         named(rank), rank, control.first_rank));
    if (control.world_size != static_cast<std::uint64_t>(launch_.world_size))
      refuse(control, fmt::format("rank {} is of a world of {}, rank {} of one of {}", named(rank), launch_.world_size,
                                  named(0), control.world_size));
    if (control.heap_bytes != heap_bytes_)
      refuse(control,
             fmt::format("rank {} asks for a heap of {} bytes, rank {} for {}; heap_bytes is the same on every "
                         "rank",
                         named(rank), heap_bytes_, named(0), control.heap_bytes));
    RankSlot& slot = control.ranks[rank];
    if (rank != 0) {
      const std::int32_t before = atomic_compare_exchange(&slot.process, 0, getpid());
      if (before != 0)
        refuse(control,
               fmt::format("two processes say that they are rank {}: {} and {}", named(rank), before, getpid()));
      slot.start_time = start_time_of_process(getpid());
    }
    atomic_store(&slot.state, RankSlot::joined);
  }

  Mapping open_heaps(ShmControl& control) const {
    while (control.heap_file < 0 && !in_trouble(control) && !deadline_.passed()) pause();  // rank 0 is about to say why
    const std::string path = path_of_heap_file(static_cast<std::uint64_t>(control.heap_process),
                                               static_cast<std::uint64_t>(control.heap_file));
    const OpenFile file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const int error = errno;
    if (file.number() < 0 && in_trouble(control)) throw_trouble(control);  // rank 0 has gone, and said why
    if (file.number() < 0)
      throw_error<Failure>(
          "cannot open the heaps of rank {} at {}: {}; ranks on shm are processes of one user in one "
          "container",
          named(0), path, std::generic_category().message(error));
    reserve(file, heap_bytes_ * static_cast<std::size_t>(launch_.rank), heap_bytes_,
            fmt::format("the heap of rank {}", named(launch_.rank)));
    return Mapping::of_file(file.number(), all_heaps_bytes(), "the ranks' heaps");
  }

  void wait_for_all(ShmControl& control, SharedObject& object) const {
    if (atomic_add(&control.joined, 1) + 1 == control.world_size) {
      // Before anybody goes on: the same ranks may found another fabric under this name at once.
      object.remove_name();
      atomic_store(&control.everybody, 1);
    }
    while (atomic_load(&control.everybody) == 0) {
      if (in_trouble(control)) throw_trouble(control);
      if (deadline_.passed()) {
        declare_trouble(control, Trouble::timeout, launch_.rank, launch_.rank, who_is_missing(control));
        throw_trouble(control);
      }
      pause();
    }
    object.keep_name();
  }

  std::string who_is_missing(const ShmControl& control) const {
    std::vector<int> missing;
    for (int rank = 0; rank < launch_.world_size; ++rank)
      if (status_of(control, rank).stage == RankStatus::absent) missing.push_back(named(rank));
    const double seconds = std::chrono::duration<double>(options_.limit_to_join()).count();
    return missing.empty() ? fmt::format("the ranks' heaps were not there within {:.1f} s", seconds)
                           : fmt::format("{} within {:.1f} s", not_started(missing), seconds);
  }

  const Launch& launch_;
  const FabricOptions& options_;
  std::size_t heap_bytes_;
  Deadline deadline_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Fabric> join_shm_processes(const Launch& launch, const FabricOptions& options) {
  require(launch.rank >= 0 && launch.rank < launch.world_size, "rank {} is not in a world of {}", launch.rank,
          launch.world_size);
  if (!launch.on_one_machine())
    throw_error<InputError>("shm joins ranks of one machine, and {} of {} are on this one; use mpi",
                            launch.num_local_ranks, launch.world_size);
  return Joining(launch, options).join();
}

}  // namespace heddle

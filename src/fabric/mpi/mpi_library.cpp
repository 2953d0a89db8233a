#include "fabric/mpi/mpi_library.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/error.h"

namespace heddle {
namespace {

std::atomic<bool> abandoned = false;  // MPI is one thing of the whole process, and so is what is known of it

// At the process's end: MPI_Finalize, which waits for all ranks and so gets a deadline.
class Finalizer {
 public:
  explicit Finalizer(std::chrono::nanoseconds deadline) : deadline_(deadline) {}
  Finalizer(const Finalizer&) = delete;
  Finalizer& operator=(const Finalizer&) = delete;

  ~Finalizer() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (abandoned || finalized != 0) return;
    std::mutex mutex;
    std::condition_variable change;
    bool done = false;
    std::thread watchdog([&] {
      std::unique_lock lock(mutex);
      if (change.wait_for(lock, deadline_, [&] { return done; })) return;
      constexpr std::string_view kLine = "heddle: error: MPI_Finalize waits for a rank longer than the deadline\n";
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
      ::_exit(1);
    });
    MPI_Finalize();
    {
      const std::lock_guard lock(mutex);
      done = true;
    }
    change.notify_one();
    watchdog.join();
  }

 private:
  std::chrono::nanoseconds deadline_;
};

// What a message over TCP to a rank that is gone would raise, which ends this process before it can name that rank.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    static_cast<void>(::signal(SIGPIPE, SIG_IGN));
}

}  // namespace

std::string mpi_error(const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return fmt::format("{}: {}", call, text);
}

void check_mpi(const char* call, int code) {
  if (code != MPI_SUCCESS) throw Failure(mpi_error(call, code));
}

void begin_mpi(const Launch& launch, RankWatch& watch) {
  ignore_broken_pipes();
  if (abandoned)
    throw Failure("mpi: a fabric of this process has failed, and MPI cannot be used again: start all ranks anew");
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  require(finalized == 0, "mpi: MPI was finalized in this process, and cannot be begun again");
  int provided = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    const RankWatch::Call call(watch, "MPI_Init", -1);
    check_mpi("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
    if (provided < MPI_THREAD_SERIALIZED) throw Failure("mpi: this MPI cannot be called by one thread after the other");
    static const Finalizer finalizer(watch.deadline());
  } else {
    MPI_Query_thread(&provided);
    require(provided >= MPI_THREAD_SERIALIZED,
            "mpi: the program has initialised MPI for one thread; it needs MPI_THREAD_SERIALIZED");
  }
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != launch.world_size || rank != launch.rank)
    throw_error<InputError>(
        "mpi: MPI says that this is rank {} of {}, mpirun's environment rank {} of {}: was the program "
        "built for another MPI than the one whose mpirun started it?",
        rank, size, launch.rank, launch.world_size);
}

void abandon_mpi() {
  abandoned = true;
}

}  // namespace heddle

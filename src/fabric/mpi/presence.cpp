#include "fabric/mpi/presence.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "fabric/liveness.h"
#include "fabric/process_state.h"

namespace heddle {
namespace {

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
};

// A leading zero byte makes it abstract.
Name name_of(std::uint64_t job, int rank) {
  Name name;
  const std::string text = fmt::format("heddle-{:016x}-{}", job, rank);
  name.address.sun_family = AF_UNIX;
  std::copy(text.begin(), text.end(), name.address.sun_path + 1);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// The process that has bound the name; 0: nobody has.
int process_behind(const Name& name) {
  const int file = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return 0;
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool found = ::connect(file, reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0 &&
                     ::getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  ::close(file);
  return found ? peer.pid : 0;
}

}  // namespace

Presence::Presence(std::uint64_t job, int rank, int world_size) : job_(job), rank_(rank), world_size_(world_size) {
  const Name name = name_of(job, rank);
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
      ::listen(socket_, SOMAXCONN) != 0) {
    const int error = errno;
    if (socket_ >= 0) ::close(socket_);
    throw_error<Failure>("mpi: rank {} cannot show itself to the other ranks: {}; is another fabric `mpi` open in it?",
                         rank, std::strerror(error));
  }
}

Presence::~Presence() {
  ::close(socket_);
}

std::string Presence::who_is_missing(bool one_machine) const {
  std::vector<int> missing;
  std::vector<int> stopped;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_) continue;
    const int process = process_behind(name_of(job_, rank));
    if (process == 0) missing.push_back(rank);
    if (process != 0 && state_of_process(process) == ProcessState::stopped) stopped.push_back(rank);
  }
  const std::string text = one_machine ? not_started(missing)
                                       : ranks_that(missing, "has not started, or is not on this machine",
                                                    "have not started, or are not on this machine");
  const std::string more = ranks_that(stopped, "is stopped", "are stopped");
  return text + (text.empty() || more.empty() ? "" : "; ") + more;
}

}  // namespace heddle

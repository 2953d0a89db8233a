// Which ranks have started, before MPI can tell: MPI_Init returns only when every rank has called it, and never names a
// rank that has not.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// While it lives, the other ranks of this machine (and network namespace) can find this one. It leaves nothing behind,
// however the process ends: it is a socket in Linux's abstract namespace, named by the job and the rank.
class Presence {
 public:
  Presence(std::uint64_t job, int rank, int world_size);
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence();

  // "rank 2 has not started"; only for ranks of this machine. Empty: all are here.
  std::string who_is_missing(bool one_machine) const;

 private:
  std::uint64_t job_;
  int rank_;
  int world_size_;
  int socket_ = -1;
};

}  // namespace heddle

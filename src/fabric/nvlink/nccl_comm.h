// An NCCL communicator with a deadline on each call in which ranks wait for each other, and its registered windows.
// Includes NCCL's headers.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "fabric/nvlink/host_exchange.h"
#include "fabric/nvlink/nccl_library.h"

namespace heddle {

class NcclComm {
 public:
  struct Window {
    std::byte* data;  // own address; null: memory of another owner
    ncclWindow_t handle;
  };

  // Collective over `team`, ranks of the exchange, which must outlive this. The rank's GPU is the thread's current one.
  NcclComm(HostExchange& exchange, std::span<const int> team, int device, std::chrono::nanoseconds deadline);
  // Releases everything: by NCCL's collective calls after close(), else by ncclCommAbort.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  const NcclLibrary& library() const { return nccl_; }
  ncclComm_t get() const { return comm_; }
  int rank() const { return rank_; }  // in the team
  int size() const { return static_cast<int>(team_.size()); }

  // Collective. Memory that NCCL allocates, zeroed and registered as a symmetric window.
  Window allocate_window(std::size_t size_bytes);

  // Collective. Memory of another communicator in NCCL's size; it outlives this object.
  void register_window(std::span<std::byte> memory);

  // Collective. Each rank's address of a window, in the team's order; the own one is window.data. Throws Failure when
  // the ranks cannot load from and store to each other's memory.
  std::vector<std::byte*> addresses(const Window& window);

  // Collective: nobody uses the windows or has operations in flight any more.
  void close();
  // Ends NCCL's operations in flight, on this rank only.
  void abort();

 private:
  template <class Call>
  void run(const char* what, Call call);
  ncclWindow_t window_of(void* memory, std::size_t bytes);
  void meet(Tag tag) { exchange_.meet(team_, tag); }

  const NcclLibrary& nccl_;
  HostExchange& exchange_;
  Ranks team_;
  int rank_ = 0;
  int world_rank_;  // copied, because the exchange may be gone when this ends
  int device_;
  std::chrono::nanoseconds deadline_;
  ncclComm_t comm_ = nullptr;
  std::vector<Window> windows_;
  std::vector<std::shared_ptr<ncclDevComm>> dev_comms_;
};

}  // namespace heddle

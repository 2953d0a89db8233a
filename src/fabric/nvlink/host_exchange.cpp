#include "fabric/nvlink/host_exchange.h"

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/deadline.h"
#include "device/atomics.h"
#include "fabric/symmetric_heap.h"

namespace heddle {

HostExchange::HostExchange(Fabric& host)
    : host_(host),
      peers_(host.peers()),
      world_(static_cast<std::size_t>(host.size())),
      epochs_(static_cast<std::size_t>(host.size())) {
  std::iota(world_.begin(), world_.end(), 0);
  const auto size = world_.size();
  slots_ = host_.allocate(2 * size * kMostBytes).data;
  flags_ = reinterpret_cast<std::uint64_t*>(host_.allocate(size * sizeof(std::uint64_t)).data);
  parted_ = peers_.at(0, reinterpret_cast<std::uint64_t*>(host_.allocate(size * sizeof(std::uint64_t)).data));
  processes_ = gather(world_, own_process(), "processes");
}

std::size_t HostExchange::heap_bytes(int world_size) {
  return static_cast<std::size_t>(world_size) * (2 * kMostBytes + 2 * sizeof(std::uint64_t)) +
         3 * SymmetricHeap::kAlignment;
}

std::byte* HostExchange::slot(std::uint64_t epoch, int from) const {
  return slots_ + (epoch % 2 * world_.size() + static_cast<std::size_t>(from)) * kMostBytes;
}

// Two slots for each pair are enough: who begins epoch e + 2 with a peer has ended e + 1, which that peer began after
// it had read epoch e.
void HostExchange::gather_bytes(std::span<const int> team, const void* mine, void* all, std::size_t each, Tag tag) {
  require_team(team, size(), rank(), tag.view());
  std::array<std::byte, kMostBytes> staged{};
  std::memcpy(staged.data(), mine, each);
  for (const int peer : team) {
    const std::uint64_t epoch = ++epochs_[static_cast<std::size_t>(peer)];
    if (peer == rank()) continue;
    host_.put(stream_, peer, slot(epoch, rank()), staged.data(), each);
    host_.signal(stream_, peer, flags_ + rank(), epoch);
  }
  for (const int peer : team)
    if (peer != rank()) host_.wait(stream_, peer, flags_ + peer, epochs_[static_cast<std::size_t>(peer)], tag);
  stream_.synchronize();  // not the fabric's synchronize(): errors after all have contributed do not concern this call
  auto* out = static_cast<std::byte*>(all);
  for (const int peer : team) {
    const std::byte* from = peer == rank() ? staged.data() : slot(epochs_[static_cast<std::size_t>(peer)], peer);
    std::memcpy(out, from, each);
    out += each;
  }
}

bool HostExchange::part(std::chrono::nanoseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  atomic_store(parted_ + rank(), 1);
  const auto has_parted = [&](int peer) {
    return atomic_load(parted_ + peer) != 0 ||
           state_of(processes_[static_cast<std::size_t>(peer)]) == ProcessState::gone;
  };
  for (const int peer : world_)
    while (!has_parted(peer)) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // each look is a system call
    }
  return true;
}

}  // namespace heddle

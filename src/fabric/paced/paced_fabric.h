// Emulates the links between machines on one machine: a fabric whose ranks are in groups, and whose transfers between
// groups take the time of a link.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "base/buffer.h"
#include "fabric/counted_fabric.h"
#include "fabric/paced/link_clocks.h"
#include "fabric/placement.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

// Out of each machine and into it, shared by its ranks.
struct PacedLink {
  double bytes_per_second = 0;
  std::chrono::nanoseconds latency{};  // of each transfer, message and barrier between machines
};

// Hands every call on to `inner`, a fabric with peer addresses (shm, or nvlink), which must outlive it.
//
// A put or get between machines ends, for its stream, when the way out of the one and the way into the other have carried
// its bytes, one transfer after the other in the order in which streams come to them, and the latency is over; not before
// `inner` has done it. A signal to another machine, and a barrier of several, begin after the latency. Inside a machine
// nothing waits. Transfers from inside kernels would not be paced, so there are none: has() denies them. A transfer that
// would take longer than the deadline of `inner` ends its stream with a Timeout, without waiting.
class PacedFabric final : public CountedFabric {
 public:
  // Of a rank's heap that the constructor allocates.
  static constexpr std::size_t kHeapBytes = sizeof(LinkClocks) + 256;
  // Of one rank, that transfer between machines and have not been synchronized since.
  static constexpr int kMostStreams = 16;

  // Collective. Throws InvalidArgument when the placement has other ranks than the fabric, and for a rate that is not
  // above 0 or a latency below 0 or not below the deadline.
  PacedFabric(Fabric& inner, const Placement& placement, const PacedLink& link);

  std::string_view name() const override { return name_; }  // "shm with emulated machine links"
  bool has(Capability capability) const override;
  Peers peers(std::span<const int> team) const override;
  Ranks addressable() const override { return {}; }
  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void barrier(Stream& stream, std::span<const int> team) override;
  void synchronize(Stream& stream) override;
  using Fabric::barrier;
  using Fabric::peers;

 private:
  bool crosses(int peer) const { return !placement_.share_machine(rank(), peer); }
  std::uint64_t* over_at(const Stream& stream);
  void reserve(Stream& stream, int from, int to, std::size_t bytes);
  void await_transfer(Stream& stream);
  void await_latency(Stream& stream);

  Placement placement_;
  PacedLink link_;
  std::string name_;
  SymmetricMemory memory_;
  Peers world_;
  LinkClocks* clocks_;  // of rank 0
  Buffer ends_;         // of each stream's last transfer
  std::array<const Stream*, kMostStreams> streams_{};
  std::uint64_t to_shared_clock_ = 0;
};

}  // namespace heddle

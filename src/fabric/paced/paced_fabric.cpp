#include "fabric/paced/paced_fabric.h"

#include <algorithm>

#include "base/copy.h"
#include "base/error.h"
#include "device/enqueue_body.h"

namespace heddle {
namespace {

constexpr BodyShape kOneThread{.blocks = 1, .threads = 1};

std::uint64_t nanoseconds_of(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(duration.count());
}

// What to add to the device's clock for that of the host, which all ranks of a machine share. A reading lies between two
// of the host's; the shortest interval of several says it to a few microseconds.
std::uint64_t difference_to_host_clock(Device device) {
  if (device.kind == DeviceKind::cpu) return 0;
  constexpr int kTries = 50;
  Stream stream(device);
  Buffer place(sizeof(std::uint64_t), device);
  std::uint64_t shortest = 0, difference = 0;
  for (int i = 0; i < kTries; ++i) {
    std::uint64_t there = 0;
    const std::uint64_t before = now_nanoseconds();
    enqueue_body(stream, kOneThread, ReadClock{reinterpret_cast<std::uint64_t*>(place.data())});
    stream.synchronize();
    const std::uint64_t lasted = now_nanoseconds() - before;
    enqueue_copy(stream, &there, place.data(), sizeof there);
    stream.synchronize();
    if (i > 0 && lasted >= shortest) continue;
    shortest = lasted;
    difference = before + lasted / 2 - there;
  }
  return difference;
}

}  // namespace

PacedFabric::PacedFabric(Fabric& inner, const Placement& placement, const PacedLink& link)
    : CountedFabric(inner),
      placement_(placement),
      link_(link),
      name_(fmt::format("{} with emulated machine links", inner.name())),
      memory_(inner, sizeof(LinkClocks)),
      ends_(kMostStreams * sizeof(std::uint64_t), inner.device()) {
  require(placement.size() == inner.size(), "emulated machine links: {} machines of {} ranks, and there are {}",
          placement.machines, placement.ranks_per_machine, inner.size());
  require(link.bytes_per_second > 0 && link.latency.count() >= 0,
          "emulated machine links: {} bytes a second after {} ns", link.bytes_per_second, link.latency.count());
  require_capability(inner, Capability::peer_addresses, "an emulation of machine links");
  world_ = inner.peers();
  require(nanoseconds_of(link.latency) < world_.waits.nanoseconds,
          "emulated machine links: a latency of {} ns, and waits give up after {} ns", link.latency.count(),
          world_.waits.nanoseconds);
  clocks_ = world_.at(0, reinterpret_cast<LinkClocks*>(memory_.data()));
  to_shared_clock_ = difference_to_host_clock(inner.device());
  inner.meet();  // before a kernel waits for a rank that still measures
}

bool PacedFabric::has(Capability capability) const {
  return capability == Capability::several_machines && CountedFabric::has(capability);
}

Peers PacedFabric::peers(std::span<const int> team) const {
  require_capability(*this, Capability::peer_addresses, "a transfer from inside a kernel");
  return CountedFabric::peers(team);
}

std::uint64_t* PacedFabric::over_at(const Stream& stream) {
  auto slot = std::ranges::find(streams_, &stream);
  if (slot == streams_.end()) slot = std::ranges::find(streams_, nullptr);
  require(slot != streams_.end(), "emulated machine links: more than {} streams", kMostStreams);
  *slot = &stream;
  return reinterpret_cast<std::uint64_t*>(ends_.data()) + (slot - streams_.begin());
}

void PacedFabric::reserve(Stream& stream, int from, int to, std::size_t bytes) {
  const auto duration = static_cast<std::uint64_t>(static_cast<double>(bytes) / link_.bytes_per_second * 1e9);
  enqueue_body(stream, kOneThread,
               ReserveLinks{world_.waits,
                            {rank(), 0, "emulated link"},
                            clocks_,
                            over_at(stream),
                            placement_.machine_of(from),
                            placement_.machine_of(to),
                            duration,
                            to_shared_clock_});
}

void PacedFabric::await_transfer(Stream& stream) {
  enqueue_body(stream, kOneThread, AwaitTransfer{over_at(stream), nanoseconds_of(link_.latency)});
}

void PacedFabric::await_latency(Stream& stream) {
  enqueue_body(stream, kOneThread, AwaitLatency{nanoseconds_of(link_.latency)});
}

// An idle stream needs no place for its transfers' end. (A captured layer keeps the places that it was captured with; layers
// run one after the other.)
void PacedFabric::synchronize(Stream& stream) {
  CountedFabric::synchronize(stream);
  if (const auto slot = std::ranges::find(streams_, &stream); slot != streams_.end()) *slot = nullptr;
}

void PacedFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  const bool paced = bytes > 0 && crosses(peer);
  if (paced) reserve(stream, rank(), peer, bytes);
  CountedFabric::put(stream, peer, destination, source, bytes);
  if (paced) await_transfer(stream);
}

void PacedFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  const bool paced = bytes > 0 && crosses(peer);
  if (paced) reserve(stream, peer, rank(), bytes);
  CountedFabric::get(stream, peer, destination, source, bytes);
  if (paced) await_transfer(stream);
}

void PacedFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  if (crosses(peer)) await_latency(stream);
  CountedFabric::signal(stream, peer, flag, value);
}

void PacedFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  if (crosses(peer)) await_latency(stream);
  CountedFabric::signal_add(stream, peer, flag, value);
}

void PacedFabric::barrier(Stream& stream, std::span<const int> team) {
  if (std::ranges::any_of(team, [&](int peer) { return crosses(peer); })) await_latency(stream);
  CountedFabric::barrier(stream, team);
}

}  // namespace heddle

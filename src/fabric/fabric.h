// The contract of a fabric: one-sided memory between the ranks of a run, as its host side sees it.
//
// Memory. Each rank has a heap of the same size; `allocate` hands out the same offset on every rank, so an address in
// the own heap names a place on every rank, and that is how every operation names a peer's memory.
//
// Order. Operations on one Stream run one after the other, each when the one before it is done as far as this rank can
// tell: a put's source may be overwritten, a get's destination read. What a put wrote at its peer is visible to a rank
// that
//   - has waited (wait) for a flag that the same stream signalled after the put, to that peer or to any other; or
//   - has passed a barrier that the same stream entered after the put; or
//   - has waited (wait) for a flag whose 8 bytes the same stream put behind a fence that came after the put. On a CPU a
//     put of 8 aligned bytes is one atomic store; a GPU copies them byte by byte, so there a flag's lowest byte alone
//     may change.
// `signal` is a release at system scope of all that its stream did before, `wait` an acquire for all that its stream
// does after. Nothing else orders ranks: two puts to one peer may arrive in any order unless a fence lies between them.
// Signals from one stream to one flag arrive in order. A stream's own memory is written by peers at any time: reading a
// place that nobody has promised to leave alone is a race.
//
// Graphs. What is enqueued on a CUDA stream may be captured and replayed, but a captured call repeats its arguments: a
// captured wait for 7 finds the flag at 7 from the second replay on, and returns before the message is there. So `signal`
// and `wait`, which name a value, must not be captured; nvlink rejects that (InvalidArgument). `signal_next` and
// `wait_next` keep their counts in device memory and may be captured, as may put, get, signal_add, fence and barrier;
// replays and eager calls go on counting where the last ended. A replay may overtake the peer by as much as the program
// allows: who puts to the same place in each replay must have heard that the last one was taken.
//
// Failure. A wait or barrier that lasts longer than the fabric's deadline ends the run for this rank: the error names
// rank, tag, expected and observed, and which rank is dead, hung or late, where that is known. It is thrown (Timeout)
// by synchronize(), and the other ranks' waits end too. A fabric that has failed stays failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/device.h"
#include "base/stream.h"
#include "device/peers.h"
#include "device/semaphore.h"
#include "device/tag.h"

namespace heddle {

// What not every fabric can. A plan or a collective asks for what it needs when it is built (require_capability).
enum class Capability : std::uint8_t {
  peer_addresses,     // loads and stores reach a peer's memory: peers() works, and so does one_sided.h
  device_initiated,   // from inside kernels, too
  several_machines,   // ranks need not share one machine
  vendor_collectives  // NCCL's own collectives, for the sizes where nothing beats them
};
std::string_view name_of(Capability capability);

// A part of the symmetric heap. Zeroed when it is handed out.
struct SymmetricSpan {
  std::byte* data = nullptr;  // own address
  std::size_t size_bytes = 0;
};

// The ranks that take part in something, in the order of their ranks there: no rank twice, each below the world's size.
// All of them name a team in the same order.
using Ranks = std::vector<int>;

// A rank's share of its GPU. Ranks that wait for each other inside kernels must all be resident, so those that share a
// GPU divide its SMs, and launch nothing ahead of its time (PDL) that would take a peer's.
struct DeviceShare {
  int ranks = 1;  // on one GPU, at most
  int sms = 0;    // of a rank, at least; 0 on the CPU
};

struct FabricOptions {
  std::size_t heap_bytes = std::size_t{128} << 20;              // a rank's; every rank must say the same
  std::chrono::nanoseconds deadline{std::chrono::seconds(10)};  // of each wait
  std::chrono::nanoseconds join_deadline{0};  // of the ranks' coming together; 0: as `deadline`, and a
                                              // minute on GPUs, whose drivers start slowly

  std::chrono::nanoseconds limit_to_join() const { return join_deadline.count() > 0 ? join_deadline : deadline; }
};

// Made collectively, by each rank of the run for itself; its functions are called by that rank alone. "Collective"
// below means: every rank calls it, in the same order, with the same arguments, or gets an InvalidArgument that names a
// rank and the values that differ.
class Fabric {
 public:
  virtual ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  virtual std::string_view name() const = 0;  // "shm", "mpi", "nvlink"
  virtual int rank() const = 0;
  virtual int size() const = 0;       // the world's number of ranks
  virtual Device device() const = 0;  // whose streams it takes, and whose memory the heap is
  virtual bool has(Capability capability) const = 0;
  // Ranks may share a GPU: how much of it each may have in use while others wait for it. The same on every rank.
  virtual DeviceShare device_share() const { return {}; }

  // Collective. Aligned to 256 bytes; lives as long as the fabric, or until it is released. Throws Failure when the
  // heap is full, with what is left of it.
  virtual SymmetricSpan allocate(std::size_t size_bytes) = 0;
  // Gives back what allocate() returned. Every rank calls it, in the same order among its calls of allocate(), once all
  // that its own streams do with those bytes, here and at peers, is done. Waits for nobody: the next allocate(), where
  // ranks meet, hands them out again at the earliest, and finds out if ranks have released differently. Throws
  // InvalidArgument for what is no such span. (symmetric_memory.h does it for an owner.)
  virtual void release(const SymmetricSpan& span) = 0;
  // Where in the own heap `bytes` at `place` lie; nothing, unless all of them are in what has been allocated.
  virtual std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const = 0;
  // Collective, of the hosts: returns when every rank has called it, whatever its streams are at. For what must not
  // happen while another rank's kernel waits, such as allocating or loading beside ranks of the same process.
  void meet() { static_cast<void>(allocate(0)); }

  // What kernels and CPU threads reach peers by: `team`'s ranks in that order; the caller must be one of them. The
  // value stays good as long as the fabric. Throws InvalidArgument without Capability::peer_addresses.
  virtual Peers peers(std::span<const int> team) const = 0;
  Peers peers() const;  // of the whole world

  // `destination` and `flag` are own addresses of places in the symmetric heap; `source` of a put and `destination` of
  // a get may be any memory of device(); null is refused (InvalidArgument), other addresses are taken at their word.
  // Sizes may be 0, alignment is free; a flag is 8 bytes, aligned. Each enqueues on `stream` and returns. `peer` may be
  // the own rank.
  virtual void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) = 0;
  virtual void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) = 0;
  virtual void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) = 0;
  virtual void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) = 0;
  // Until the own flag, which `from` raises, is >= target.
  virtual void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) = 0;
  // One message more: a signal_add of 1 to `peer`'s semaphore, which lies in the heap as flags do.
  void signal_next(Stream& stream, int peer, Semaphore* semaphore);
  // Until one message more has come to the own semaphore, which `from` signals, than waits were made before; an acquire
  // as `wait`.
  virtual void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) = 0;
  // The stream's earlier puts are at their peers, for every rank to see, before any of its later operations begins: a
  // full fence (seq_cst). So of two ranks that each put a word to the other, fence, and read their own (by a get, or by
  // an atomic load), one at least sees what it was given.
  virtual void fence(Stream& stream) = 0;
  // Every rank of `team` enqueues it as often; what each wrote before is visible to all after. Different teams may meet
  // on different streams at once; one team's barriers lie in one stream, or in several that events order.
  virtual void barrier(Stream& stream, std::span<const int> team) = 0;
  void barrier(Stream& stream);  // of the whole world

  // Tells the other ranks that this one has ended with an error of its own: their waits end. What a fabric's destructor
  // does when an exception is on its way; for who must do so before, as its memory is needed until others have ended.
  virtual void abandon() {}

  // Waits for the stream, then throws what went wrong in it: Timeout with the record of the wait that gave up.
  virtual void synchronize(Stream& stream) = 0;

 protected:
  Fabric() = default;
};

// Throws InvalidArgument: "torus attention needs a fabric with peer addresses; mpi has none".
void require_capability(const Fabric& fabric, Capability capability, std::string_view who);

// Throws InvalidArgument, naming `who`, unless `team` is a team of a world of that size, and has `rank` in it.
void require_team(std::span<const int> team, int world_size, int rank, std::string_view who);

}  // namespace heddle

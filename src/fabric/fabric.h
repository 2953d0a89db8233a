// The contract of a fabric: one-sided memory between the ranks of a run, as its host side sees it.
//
// Memory. Each rank has a heap of the same size. `allocate` returns the same offset on every rank, so an address in a
// rank's own heap names the same place in every heap. Operations name a peer's memory by such an address.
//
// Order. Operations on one Stream run one after the other. Each begins when the one before is locally complete: a put's
// source may be overwritten, a get's destination read. What a put wrote at its peer is visible to a rank that
//   - has waited (wait) for a flag that the same stream signalled after the put, to that peer or to any other; or
//   - has passed a barrier that the same stream entered after the put; or
//   - has waited (wait) for a flag whose 8 bytes the same stream put behind a fence that came after the put. A put of 8
//     bytes to an aligned address is one atomic store (relaxed).
// `signal` is a release at system scope of all that its stream did before, `wait` an acquire for all that its stream
// does after. Nothing else orders ranks: two puts to one peer may arrive in any order unless a fence lies between them.
// Signals from one stream to one flag arrive in order. Peers may write a rank's heap at any time: reading a place that
// peers may be writing is a race.
//
// Graphs. What is enqueued on a CUDA stream may be captured and replayed, but a captured call repeats its arguments: a
// captured wait for 7 finds the flag at 7 from the second replay on, and returns before the message is there. So
// `signal` and `wait`, which name a value, must not be captured; nvlink rejects that (InvalidArgument). `signal_next`
// and `wait_next` keep their counts in device memory and may be captured, as may put, get, signal_add, fence and
// barrier; replays and eager calls go on counting where the last ended. A replay may overtake the peer by as much as
// the program allows: a program that puts to the same place in each replay must first wait for word that the last put
// was read.
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

// Features that not every fabric has. Plans and collectives check what they need when they are built
// (require_capability).
enum class Capability : std::uint8_t {
  peer_addresses,     // loads and stores reach every peer's memory: peers() works, and so does one_sided.h
  device_initiated,   // from inside kernels, too
  several_machines,   // ranks need not share one machine
  vendor_collectives  // NCCL's collectives
};
std::string_view name_of(Capability capability);

// A part of the symmetric heap. Zeroed on every rank before `allocate` returns on any.
struct SymmetricSpan {
  std::byte* data = nullptr;  // own address
  std::size_t size_bytes = 0;
};

// A team: distinct ranks of the world, by their rank in the team. All of them name a team in the same order.
using Ranks = std::vector<int>;

// A rank's share of its GPU. Kernels of ranks that wait for each other must all be resident, so ranks that share a GPU
// divide its SMs, and launch without PDL, since a kernel that starts early would take a peer's SMs.
struct DeviceShare {
  int ranks = 1;  // maximum number of ranks on one GPU
  int sms = 0;    // minimum number of SMs per rank; 0 on the CPU
};

struct FabricOptions {
  std::size_t heap_bytes = std::size_t{128} << 20;              // a rank's; every rank must say the same
  std::chrono::nanoseconds deadline{std::chrono::seconds(10)};  // of each wait
  std::chrono::nanoseconds join_deadline{0};  // of the ranks' coming together; 0: as `deadline`, and a
                                              // minute on GPUs, whose drivers start slowly

  // The number by which errors name rank 0: of a fabric inside a machine, the machine's first rank in the run. At most 127.
  int first_rank = 0;

  std::chrono::nanoseconds limit_to_join() const { return join_deadline.count() > 0 ? join_deadline : deadline; }
};

// Each rank of the run constructs its own, collectively, and only that rank calls its functions. "Collective" below
// means: every rank calls the function, in the same order, with the same arguments, or gets an InvalidArgument that
// names a rank and the values that differ.
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
  // How much of its GPU each rank may use while ranks that share it wait. The same on every rank.
  virtual DeviceShare device_share() const { return {}; }

  // Collective. Aligned to 256 bytes; lives until it is released or the fabric ends. Throws Failure when the heap is
  // full, with the bytes that are left.
  virtual SymmetricSpan allocate(std::size_t size_bytes) = 0;
  // Releases what allocate() returned. Every rank calls it, in the same order relative to its calls of allocate(), once
  // all work of its own streams on those bytes, here and at peers, is done. Does not wait for other ranks: they meet in
  // the next allocate(), which may return the bytes again and detects ranks that have released differently. Throws
  // InvalidArgument for any other span. (symmetric_memory.h is the owner that does this.)
  virtual void release(const SymmetricSpan& span) = 0;
  // Offset of `place` in this rank's heap; empty unless all `bytes` there are allocated.
  virtual std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const = 0;
  // Collective. A barrier of the hosts alone: returns when every rank has called it, whatever its streams do. For what
  // must not happen while another rank's kernel waits, such as allocating memory next to ranks of the same process.
  void meet() { static_cast<void>(allocate(0)); }

  // The addresses by which kernels and CPU threads reach the ranks of `team`, in that order; the caller must be one of
  // them. Valid as long as the fabric. Throws InvalidArgument where the team has a rank that is not addressable().
  virtual Peers peers(std::span<const int> team) const = 0;
  Peers peers() const;  // of the whole world
  // The ranks that peers() reaches, rising, this one among them: all with Capability::peer_addresses, those of this machine
  // on a hierarchical fabric; none where there are no addresses.
  virtual Ranks addressable() const;

  // The peer's side (a put's `destination`, a get's `source`, `flag`) is an address in this rank's symmetric heap. The
  // other side may be any memory of device(): null is rejected (InvalidArgument), other addresses are not checked.
  // Sizes may be 0 and alignment is arbitrary; a flag is 8 aligned bytes. Each call enqueues on `stream` and returns.
  // `peer` may be this rank.
  virtual void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) = 0;
  virtual void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) = 0;
  // Says in stream order that the stream will put() this, with the same arguments, so that the bytes may leave before those
  // of earlier puts have. It waits for nothing, and nothing need wait for it but that put(): until it is done, `source`
  // stays as it is, and `destination` may be written at any time. A stream puts what it has begun in the order in which it
  // began. Other operations may lie between; a signal or fence there may wait for the begun put, too. Fabrics whose
  // puts are plain copies do nothing here.
  virtual void begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes);
  // Says in stream order that the stream will get() this, with the same arguments, so that the request may go out before
  // the bytes of earlier gets have come. It waits for nothing, and nothing waits for it but that get(): until it is done,
  // `source` may be read and `destination` written at any time, so what the peer wrote there must be visible to this
  // stream by now. A stream gets what it has begun in the order in which it began; the bytes come about in that order,
  // too. Other operations may lie between. Fabrics whose gets are plain copies do nothing here.
  virtual void begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes);
  virtual void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) = 0;
  virtual void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) = 0;
  // Waits until this rank's flag, which `from` raises, is >= target.
  virtual void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) = 0;
  // Adds one message: a signal_add of 1 to `peer`'s semaphore, which lies in the heap as flags do.
  void signal_next(Stream& stream, int peer, Semaphore* semaphore);
  // Waits for the next message at this rank's semaphore, which `from` signals; an acquire as `wait`.
  virtual void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) = 0;
  // The stream's earlier puts are at their peers, visible to every rank, before any of its later operations begins: a
  // full fence (seq_cst). So if two ranks each put a word to the other, fence, and read their own word (by a get, or by
  // an atomic load), at least one of them sees the other's put.
  virtual void fence(Stream& stream) = 0;
  // A barrier of `team`: what each rank wrote before is visible to all after. Different teams may have barriers on
  // different streams at once; one team's barriers are in one stream, or in several that events order.
  virtual void barrier(Stream& stream, std::span<const int> team) = 0;
  void barrier(Stream& stream);  // of the whole world

  // Tells the other ranks that this one has failed, which ends their waits. The destructor does so during an exception;
  // for callers that must do so earlier, because peers still use memory of theirs, or that know the cause. `cause` is then
  // the error of every rank, in its first few hundred characters; empty: that this rank has ended with an error of its own.
  // The first error of a run is final. nvlink tells no cause.
  virtual void abandon(std::string_view cause) { static_cast<void>(cause); }
  void abandon() { abandon({}); }

  // Waits for the stream, and for what it has begun to put or get and, after an error perhaps, has not put or got. Then
  // throws the stream's error: Timeout with the record of the wait that gave up.
  virtual void synchronize(Stream& stream) = 0;

 protected:
  Fabric() = default;
};

// Throws InvalidArgument: "torus attention needs a fabric with peer addresses; mpi has none".
void require_capability(const Fabric& fabric, Capability capability, std::string_view who);

// Throws InvalidArgument, naming `who`, unless `team` is a team of a world of that size and contains `rank`.
void require_team(std::span<const int> team, int world_size, int rank, std::string_view who);

}  // namespace heddle

// A fabric of ranks whose memory is on devices that no network reaches: bytes go through host memory, and between machines by
// `host`, a fabric of the same ranks in host memory (mpi). Of a GPU or, for tests, of the CPU: the source is the same.
//
// How. A stream that transfers has a lane: a CPU stream, the proxy, that runs beside it. An operation has the proxy wait until the
// stream has come to it; the proxy then copies out of the device in pieces, and sends each with a request to the peer's staging
// area (staging_area.h). There a thread (staging_server.h) copies it into the device's memory, or raises a flag by a kernel of one
// thread. A get is a request, and an answer that the proxy copies into the device. The stream goes on when the operation is
// locally complete: it waits, by a kernel of one thread, for a word that the proxy stores. A signal holds up nothing, and a wait
// looks at the flag in the device's memory, so no host is in its way. What a rank does to itself its stream does.
//
// begin_put() and begin_get() have the proxy do the operation at once, while the stream goes on; put() and get() then only wait
// for it.
//
// Order. As fabric.h says. A lane's requests to one peer are carried out in order. A signal to another peer, a fence and a barrier
// first ask those that the lane has put to. What `host` orders is never counted on for the device's memory.
//
// Failure. The proxies' waits have the deadline of `host`, and so have the device's. A failure of `host` ends the device's
// waits, and a wait that gives up there is the error of all ranks. To close, a rank serves until all ranks close, as mpi does.
//
// No peer addresses. Nothing but what a rank does to itself may be captured in a graph (InvalidArgument), since a proxy would not
// see a replay.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/staged/staging_server.h"
#include "fabric/symmetric_heap.h"

namespace heddle {

struct StagedOptions {
  std::size_t piece_bytes = std::size_t{1} << 20;               // of a request; the same on every rank
  std::chrono::nanoseconds deadline{std::chrono::seconds(10)};  // of the device's waits
};

class StagedFabric final : public Fabric {
 public:
  // Of the heap of `host`.
  static std::size_t host_heap_bytes(int ranks, const StagedOptions& options = {});

  // Collective over the ranks of `host`, which nothing else uses. `heap` is memory of `device` that outlives the fabric, zeroed
  // and as large on every rank.
  StagedFabric(std::unique_ptr<Fabric> host, Device device, std::span<std::byte> heap,
               const StagedOptions& options = {});
  ~StagedFabric() override;

  std::string_view name() const override { return "staged"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Device device() const override { return device_; }
  bool has(Capability capability) const override {
    return capability == Capability::several_machines && host_->has(capability);
  }

  SymmetricSpan allocate(std::size_t size_bytes) override;
  void release(const SymmetricSpan& span) override;
  std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const override {
    return allocated_.offset_of(heap_.data(), place, bytes);
  }
  Peers peers(std::span<const int> team) const override;
  using Fabric::peers;

  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) override;
  void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) override;
  void fence(Stream& stream) override;
  void barrier(Stream& stream, std::span<const int> team) override;
  void abandon(std::string_view cause) override { host_->abandon(cause); }
  void synchronize(Stream& stream) override;
  using Fabric::barrier;

 private:
  // A put or get by its arguments.
  struct Transfer {
    bool is_put;
    int peer;
    std::byte* local;
    std::size_t offset, bytes;

    friend bool operator==(const Transfer&, const Transfer&) = default;
  };
  struct Lane {
    Lane(int lane_number, Device device, int ranks, std::size_t slot_bytes);

    int number;
    std::atomic<const Stream*> of = nullptr;  // also read by whoever looks whether the run has failed
    bool is_idle = true;                      // since synchronize()
    bool is_ahead = false;                    // the proxy may have work that its stream does not wait for
    ThreadPool pool{1};
    Stream proxy{pool};
    OwnStream copies;
    Buffer slot;                             // what the proxy sends
    SharedWords passed;                      // how often the proxy has let its stream go on
    std::uint64_t holds = 0;                 // how often the stream has been held
    std::vector<std::uint64_t> sent, asked;  // by peer: requests, and answers to them
    std::vector<bool> unconfirmed;           // by peer: whether it may not have carried out all
    std::deque<Transfer> begun;
  };

  Lane& lane_of(Stream& stream);
  bool is_in_order(const Stream& stream) const;  // all that it has begun at other ranks is done before it goes on
  Lane& lead(Stream& stream);                    // its lane, whose proxy goes on when the stream has come here
  void follow(Lane& lane, Stream& stream, int peer, Tag tag);
  void raise(Stream& stream, int peer, StagedRequest request);  // a flag
  void send(Lane& lane, int peer, StagedRequest request, const std::byte* bytes);
  void confirm_all_but(Lane& lane, int peer, Tag tag);
  void move(Lane& lane, const Transfer& transfer);
  void move_put(Lane& lane, const Transfer& transfer);
  void move_get(Lane& lane, const Transfer& transfer);
  void move_here(Stream& stream, const Transfer& transfer);  // from this rank to itself
  void begin(Stream& stream, const Transfer& transfer);
  void finish(Stream& stream, const Transfer& transfer, Tag tag);
  std::vector<std::uint64_t> exchange(std::uint64_t value);
  WaitRecord& record() { return *reinterpret_cast<WaitRecord*>(record_.data()); }
  WaitLimit waits();
  void throw_if_failed();
  void close();

  std::unique_ptr<Fabric> host_;
  Device device_;
  std::span<std::byte> heap_;
  std::chrono::nanoseconds deadline_;
  int exceptions_at_start_;
  SharedWords record_;
  StagingArea area_;
  SymmetricHeap allocated_;
  ThreadPool pool_{1};
  Stream meeting_{pool_}, idle_{pool_};
  std::uint64_t rounds_ = 0;  // of exchange()
  std::array<std::unique_ptr<Lane>, StagingArea::kLanes> lanes_;
  std::unique_ptr<StagingServer> server_;
};

}  // namespace heddle

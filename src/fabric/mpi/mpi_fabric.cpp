#include "fabric/mpi/mpi_fabric.h"

#include <mpi.h>

#include <atomic>
#include <utility>

#include "base/error.h"
#include "fabric/call_checks.h"
#include "fabric/mpi/mpi_world.h"
#include "fabric/symmetric_heap.h"

namespace heddle {
namespace {

// Checks what it is given and enqueues; MpiWorld does it.
class MpiFabric final : public Fabric, public MessageExchange {
 public:
  MpiFabric(const Launch& launch, const FabricOptions& options, std::byte* heap);

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  Device device() const override { return {}; }
  bool has(Capability capability) const override {
    return capability == Capability::several_machines ||
           (capability == Capability::peer_addresses && world_.shared_heaps() != nullptr);
  }

  SymmetricSpan allocate(std::size_t size_bytes) override;
  void release(const SymmetricSpan& span) override;
  std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const override {
    return heap_.offset_of(world_.heap(), place, bytes);
  }
  Peers peers(std::span<const int> team) const override;

  void begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override;
  void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) override;
  void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) override;
  void fence(Stream& stream) override;
  void barrier(Stream& stream, std::span<const int> team) override;
  void abandon(std::string_view cause) override { world_.abandon(cause); }
  void synchronize(Stream& stream) override;

  void exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                         std::span<const IncomingMessage> incoming, Tag tag) override {
    world_.exchange_messages(channel, outgoing, incoming, tag);
  }

 private:
  SymmetricHeap heap_;
  MpiWorld world_;
  Peers peers_;  // of the whole world, with shared heaps
  std::atomic<bool> has_begun_puts_ = false, has_begun_gets_ = false;
};

MpiFabric::MpiFabric(const Launch& launch, const FabricOptions& options, std::byte* heap)
    : heap_(options.heap_bytes), world_(launch, options, heap) {
  const SharedHeaps* const shared = world_.shared_heaps();
  if (shared == nullptr) return;
  peers_ = {.rank = rank(), .size = size(), .waits = world_.wait_limit()};
  for (int peer = 0; peer < size(); ++peer) peers_.heaps[peer] = shared->heap(peer);
}

Peers MpiFabric::peers(std::span<const int> team) const {
  if (!has(Capability::peer_addresses))
    throw InvalidArgument("mpi has no peer addresses between machines: memory there is reached by put and get alone");
  require_team(team, size(), rank(), "peers");
  return peers_.of(team);
}

SymmetricSpan MpiFabric::allocate(std::size_t size_bytes) {
  require_equal_allocations(world_.exchange(size_bytes, "allocate"));
  const auto [offset, used_before] = heap_.allocate(size_bytes);
  if (size_bytes != 0) {
    world_.clear(offset, used_before);  // by now every rank has released it
    require_equal_offsets(world_.exchange(offset, "allocate"));
  }
  return {.data = world_.heap() + offset, .size_bytes = size_bytes};
}

void MpiFabric::release(const SymmetricSpan& span) {
  heap_.release(static_cast<std::size_t>(span.data - world_.heap()), span.size_bytes);
}

void MpiFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "put");
  require_local(source, bytes, "put");
  const std::size_t offset = require_symmetric(*this, destination, bytes, "put");
  stream.enqueue([=, this](ThreadPool&) { world_.put(peer, offset, source, bytes); });
}

void MpiFabric::begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_put");
  require_local(source, bytes, "begin_put");
  const std::size_t offset = require_symmetric(*this, destination, bytes, "begin_put");
  has_begun_puts_ = true;
  stream.enqueue([=, this](ThreadPool&) { world_.begin_put(peer, offset, source, bytes); });
}

void MpiFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "get");
  require_local(destination, bytes, "get");
  const std::size_t offset = require_symmetric(*this, source, bytes, "get");
  stream.enqueue([=, this](ThreadPool&) { world_.get(peer, destination, offset, bytes); });
}

void MpiFabric::begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_get");
  require_local(destination, bytes, "begin_get");
  const std::size_t offset = require_symmetric(*this, source, bytes, "begin_get");
  has_begun_gets_ = true;
  stream.enqueue([=, this](ThreadPool&) { world_.begin_get(peer, destination, offset, bytes); });
}

void MpiFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal");
  const std::size_t offset = require_flag(*this, flag, "signal");
  stream.enqueue([=, this](ThreadPool&) { world_.signal(peer, offset, value, SignalKind::set); });
}

void MpiFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal_add");
  const std::size_t offset = require_flag(*this, flag, "signal_add");
  stream.enqueue([=, this](ThreadPool&) { world_.signal(peer, offset, value, SignalKind::add); });
}

void MpiFabric::wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait");
  const std::size_t offset = require_flag(*this, flag, "wait");
  stream.enqueue([=, this](ThreadPool&) { world_.wait(from, offset, target, tag); });
}

void MpiFabric::fence(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "fence");
  stream.enqueue([this](ThreadPool&) { world_.fence(); });
}

void MpiFabric::barrier(Stream& stream, std::span<const int> team) {
  require_stream_and_peer(*this, stream, rank(), "barrier");
  require_team(team, size(), rank(), "barrier");
  stream.enqueue([this, ranks = Ranks(team.begin(), team.end())](ThreadPool&) { world_.barrier(ranks); });
}

void MpiFabric::wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait_next");
  require_semaphore(*this, semaphore, "wait_next");
  const std::size_t offset = require_flag(*this, &semaphore->arrived, "wait_next");
  stream.enqueue([=, this](ThreadPool&) {
    world_.wait(from, offset, semaphore->taken + 1, tag);
    ++semaphore->taken;
  });
}

void MpiFabric::synchronize(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "synchronize");
  if (has_begun_puts_) stream.enqueue([this](ThreadPool&) { world_.end_begun_puts(); }, AfterError::run);
  if (has_begun_gets_) stream.enqueue([this](ThreadPool&) { world_.end_begun_gets(); }, AfterError::run);
  stream.synchronize();
  world_.throw_if_in_trouble();
}

}  // namespace

std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options) {
  return open_mpi_fabric(options, nullptr);
}

std::unique_ptr<Fabric> open_mpi_fabric(const FabricOptions& options, std::byte* heap) {
  const Launch launch = read_launch();
  require(options.deadline.count() > 0, "mpi: the deadline is {} ns, not above 0", options.deadline.count());
  constexpr std::size_t kMost = std::size_t{1} << 46;  // beyond any machine's memory, and far from an overflow
  if (options.heap_bytes > kMost)
    throw_error<InputError>("mpi: a heap of {} bytes is more than a machine has", options.heap_bytes);
  return std::make_unique<MpiFabric>(launch, options, heap);
}

}  // namespace heddle

#include "fabric/shm/shm_fabric.h"

#include <cstring>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "device/one_sided.h"
#include "device/wait_watch.h"
#include "fabric/call_checks.h"
#include "fabric/looks_before_yield.h"
#include "fabric/mapped_memory.h"

namespace heddle {
namespace {

constexpr HostThread kThread;

}  // namespace

ShmFabric::ShmFabric(std::shared_ptr<ShmWorld> world, int rank, const FabricOptions& options,
                     std::unique_ptr<Monitor> monitor)
    : world_(std::move(world)),
      rank_(rank),
      heap_(world_->heap_bytes()),
      first_rank_(options.first_rank),
      exceptions_at_start_(std::uncaught_exceptions()),
      monitor_(std::move(monitor)) {
  peers_ = {.rank = rank,
            .size = world_->size(),
            .waits = {.record = &world_->control().record,
                      .nanoseconds = static_cast<std::uint64_t>(options.deadline.count()),
                      .looks_before_yield = looks_before_yield(world_->size())}};
  for (int peer = 0; peer < size(); ++peer) {
    peers_.heaps[peer] = world_->heap(peer);
    peers_.to_world[peer] = static_cast<std::int8_t>(first_rank_);
  }
}

ShmFabric::~ShmFabric() {
  if (std::uncaught_exceptions() > exceptions_at_start_)
    abandon({});
  else if (atomic_load<Order::relaxed>(&slot(rank_).state) != RankSlot::failed)
    atomic_store(&slot(rank_).state, RankSlot::left);
}

void ShmFabric::abandon(std::string_view cause) {
  atomic_store(&slot(rank_).state, RankSlot::failed);
  const std::string text = cause.empty() ? ended_by_exception(named(rank_), slot(rank_).process)
                                         : printable(cause, sizeof(Trouble::text) - 1);
  declare_trouble(world_->control(), Trouble::failure, named(rank_), named(rank_), text);
}

std::vector<std::uint64_t> ShmFabric::exchange(std::uint64_t value) {
  // Two values a rank suffice: nobody can be two calls ahead of another.
  const std::size_t place = num_allocations_ % 2;
  ++num_allocations_;
  atomic_store<Order::relaxed>(&slot(rank_).allocation_bytes[place], value);
  atomic_store(&slot(rank_).allocations, num_allocations_);
  for (int peer = 0; peer < size(); ++peer) await(peer, &slot(peer).allocations, num_allocations_, "allocate");
  std::vector<std::uint64_t> of_ranks;
  of_ranks.reserve(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    of_ranks.push_back(atomic_load<Order::relaxed>(&slot(peer).allocation_bytes[place]));
  return of_ranks;
}

SymmetricSpan ShmFabric::allocate(std::size_t size_bytes) {
  require_equal_allocations(exchange(size_bytes));
  const auto [offset, used_before] = heap_.allocate(size_bytes);
  std::byte* const data = world_->heap(rank_) + offset;
  if (size_bytes == 0) return {data, 0};
  std::memset(data, 0, used_before);  // by now every rank has released it
  require_equal_offsets(exchange(offset));
  return {data, size_bytes};
}

void ShmFabric::release(const SymmetricSpan& span) {
  heap_.release(static_cast<std::size_t>(span.data - world_->heap(rank_)), span.size_bytes);
}

std::optional<std::size_t> ShmFabric::offset_of(const void* place, std::size_t bytes) const {
  return heap_.offset_of(world_->heap(rank_), place, bytes);
}

Peers ShmFabric::peers(std::span<const int> team) const {
  require_team(team, size(), rank_, "peers");
  return peers_.of(team);
}

void ShmFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "put");
  require_symmetric(*this, destination, bytes, "put");
  require_local(source, bytes, "put");
  stream.enqueue([there = peers_.at(peer, static_cast<std::byte*>(destination)), source, bytes](ThreadPool&) {
    copy_mapped(there, source, bytes);
  });
}

void ShmFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "get");
  require_symmetric(*this, source, bytes, "get");
  require_local(destination, bytes, "get");
  stream.enqueue([there = peers_.at(peer, static_cast<const std::byte*>(source)), destination, bytes](ThreadPool&) {
    copy_mapped(destination, there, bytes);
  });
}

void ShmFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal");
  require_flag(*this, flag, "signal");
  stream.enqueue([this, peer, flag, value](ThreadPool&) { heddle::signal(kThread, peers_, peer, flag, value); });
}

void ShmFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal_add");
  require_flag(*this, flag, "signal_add");
  stream.enqueue([this, peer, flag, value](ThreadPool&) { heddle::signal_add(kThread, peers_, peer, flag, value); });
}

void ShmFabric::wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait");
  require_flag(*this, flag, "wait");
  stream.enqueue([this, from, flag, target, tag](ThreadPool&) { await(from, flag, target, tag); });
}

void ShmFabric::fence(Stream& stream) {
  require_stream_and_peer(*this, stream, rank_, "fence");
  // A stream's tasks run on one thread, as a fence asks of what it orders.
  stream.enqueue([](ThreadPool&) { fence_mapped(); });
}

void ShmFabric::barrier(Stream& stream, std::span<const int> team) {
  require_stream_and_peer(*this, stream, rank_, "barrier");
  require_team(team, size(), rank_, "barrier");
  const int number = number_of(world_->control(), team);
  stream.enqueue(
      [this, &members = world_->control().teams[number], &epochs = world_->control().team_epochs[number]](ThreadPool&) {
        const std::uint64_t epoch = atomic_add(&epochs[rank_].entered, 1) + 1;
        for (int peer = 0; peer < size(); ++peer)
          if (members.has(peer)) await(peer, &epochs[peer].entered, epoch, "barrier");
      });
}

void ShmFabric::wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait_next");
  require_semaphore(*this, semaphore, "wait_next");
  stream.enqueue([this, from, semaphore, tag](ThreadPool&) {
    await(from, &semaphore->arrived, semaphore->taken + 1, tag);
    ++semaphore->taken;
  });
}

void ShmFabric::synchronize(Stream& stream) {
  require_stream_and_peer(*this, stream, rank_, "synchronize");
  stream.synchronize();
  if (in_trouble(world_->control())) give_up();
}

void ShmFabric::await(int from, const std::uint64_t* word, std::uint64_t target, Tag tag) const {
  if (atomic_load(word) >= target) return;
  std::uint32_t& waits_for = slot(rank_).waits_for;
  atomic_store<Order::relaxed>(&waits_for, static_cast<std::uint32_t>(from) + 1);
  // A rank that has failed behind what is waited for here has raised the word first. While giving up still waiting, as
  // others may ask.
  if (!spin_until(peers_.waits, {named(rank_), named(from), tag}, word, target) && atomic_load(word) < target)
    give_up();
  atomic_store<Order::relaxed>(&waits_for, 0);
}

void ShmFabric::give_up() const {
  ShmControl& control = world_->control();
  const WaitRecord& record = control.record;
  // A wait has given up, of a collective perhaps, and nobody has put it into words yet. (If the record is not complete,
  // its writer is at it or dead: that is what the words of declare_trouble() or their absence are for.)
  if (atomic_load(&record.state) == WaitRecord::complete && atomic_load(&control.trouble.state) == Trouble::none)
    declare_trouble(control, Trouble::timeout, record.rank, record.from,
                    what_gave_up(record, peers_.waits.nanoseconds, who_is_late(record)));
  throw_trouble(control);
}

std::string ShmFabric::who_is_late(const WaitRecord& record) const {
  std::vector<RankStatus> ranks;
  ranks.reserve(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    ranks.push_back(monitor_ != nullptr ? monitor_->status(peer) : status_of(world_->control(), peer));
  return heddle::who_is_late(record.rank - first_rank_, record.from - first_rank_, ranks,
                             {Monitor::kInterval, std::chrono::nanoseconds(peers_.waits.nanoseconds)}, first_rank_);
}

}  // namespace heddle

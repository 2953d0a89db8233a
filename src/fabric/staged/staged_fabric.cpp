#include "fabric/staged/staged_fabric.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "base/alignment.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/log.h"
#include "device/atomics.h"
#include "device/wait_watch.h"
#include "fabric/call_checks.h"
#include "fabric/looks_before_yield.h"
#include "fabric/staged/staged_bodies.h"

namespace heddle {
namespace {

bool is_word(const void* place, std::size_t bytes) {
  return bytes == sizeof(std::uint64_t) && is_aligned(place, sizeof(std::uint64_t));
}

void reject_capture(const Stream& stream) {
  require(!staged::is_captured(stream),
          "staged: what goes through the host cannot be captured in a graph, since the host would not see a replay");
}

}  // namespace

StagedFabric::Lane::Lane(int lane_number, Device device, int ranks, std::size_t slot_bytes)
    : number(lane_number),
      copies(device),
      slot(slot_bytes),
      passed(device, sizeof(std::uint64_t)),
      sent(static_cast<std::size_t>(ranks)),
      asked(sent.size()),
      unconfirmed(sent.size()) {}

std::size_t StagedFabric::host_heap_bytes(int ranks, const StagedOptions& options) {
  return StagingArea(nullptr, ranks, options.piece_bytes).bytes() + SymmetricHeap::kAlignment;
}

StagedFabric::StagedFabric(std::unique_ptr<Fabric> host, Device device, std::span<std::byte> heap,
                           const StagedOptions& options)
    : host_(std::move(host)),
      device_(device),
      heap_(heap),
      deadline_(options.deadline),
      exceptions_at_start_(std::uncaught_exceptions()),
      record_(device, sizeof(WaitRecord)),
      area_(host_->allocate(StagingArea(nullptr, host_->size(), options.piece_bytes).bytes()).data, host_->size(),
            options.piece_bytes),
      allocated_(heap.size()) {
  new (record_.data()) WaitRecord;
  for (int lane = 0; lane < StagingArea::kLanes; ++lane)
    lanes_[static_cast<std::size_t>(lane)] = std::make_unique<Lane>(lane, device_, size(), area_.slot_bytes());
  server_ = std::make_unique<StagingServer>(*host_, device_, heap_, area_, record(), waits().nanoseconds);
  const std::vector<std::uint64_t> heaps = exchange(heap_.size());
  for (int other = 0; other < size(); ++other)
    require(heaps[static_cast<std::size_t>(other)] == heaps[0],
            "staged: rank 0 has a heap of {} bytes, rank {} one of {}", heaps[0], other,
            heaps[static_cast<std::size_t>(other)]);
}

StagedFabric::~StagedFabric() {
  if (std::uncaught_exceptions() > exceptions_at_start_) host_->abandon();
  try {
    close();
  } catch (const std::exception& error) {
    if (std::uncaught_exceptions() == exceptions_at_start_) log_warning("staged: rank {}: {}", rank(), error.what());
  }
  server_->close();
}

// Others may still get from this rank, or ask whether it has done what they put. Limited by their lives.
void StagedFabric::close() {
  throw_if_failed();
  for (auto& lane : lanes_) host_->synchronize(lane->proxy);
  ++rounds_;
  for (int peer = 0; peer < size(); ++peer) host_->signal_next(meeting_, peer, area_.told(rank()));
  host_->synchronize(meeting_);
  for (int peer = 0; peer < size(); ++peer)
    while (atomic_load(&area_.told(peer)->arrived) < rounds_) {
      throw_if_failed();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

// Two sets of words suffice: nobody can be two rounds ahead of another.
std::vector<std::uint64_t> StagedFabric::exchange(std::uint64_t value) {
  throw_if_failed();
  const std::uint64_t round = rounds_++;
  for (int peer = 0; peer < size(); ++peer) {
    host_->put(meeting_, peer, area_.word(rank(), round), &value, sizeof value);
    host_->signal_next(meeting_, peer, area_.told(rank()));
  }
  for (int peer = 0; peer < size(); ++peer) host_->wait_next(meeting_, peer, area_.told(peer), "allocate");
  host_->synchronize(meeting_);
  std::vector<std::uint64_t> values;
  values.reserve(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) values.push_back(atomic_load<Order::relaxed>(area_.word(peer, round)));
  return values;
}

SymmetricSpan StagedFabric::allocate(std::size_t size_bytes) {
  require_equal_allocations(exchange(size_bytes));
  const auto [offset, used_before] = allocated_.allocate(size_bytes);
  if (size_bytes != 0) {
    OwnStream clears(device_);
    if (used_before != 0)
      enqueue_clear(*clears, heap_.data() + offset, used_before);  // by now every rank has released it
    (*clears).synchronize();
    require_equal_offsets(exchange(offset));
  }
  return {.data = heap_.data() + offset, .size_bytes = size_bytes};
}

void StagedFabric::release(const SymmetricSpan& span) {
  allocated_.release(static_cast<std::size_t>(span.data - heap_.data()), span.size_bytes);
}

Peers StagedFabric::peers(std::span<const int> /*team*/) const {
  throw InvalidArgument("staged has no peer addresses: memory of other ranks is reached by put and get alone");
}

WaitLimit StagedFabric::waits() {
  return {.record = &record(),
          .nanoseconds = static_cast<std::uint64_t>(deadline_.count()),
          .looks_before_yield = looks_before_yield(size())};
}

StagedFabric::Lane& StagedFabric::lane_of(Stream& stream) {
  const auto found = std::ranges::find_if(lanes_, [&](const auto& lane) { return lane->of == &stream; });
  if (found != lanes_.end()) return **found;
  auto free = std::ranges::find_if(lanes_, [](const auto& lane) { return lane->of == nullptr; });
  if (free == lanes_.end()) free = std::ranges::find_if(lanes_, [](const auto& lane) { return lane->is_idle; });
  require(free != lanes_.end(), "staged: more than {} streams transfer at once", StagingArea::kLanes);
  Lane& lane = **free;
  confirm_all_but(lane, -1, "lane");  // the stream that had it may go on with another
  host_->synchronize(lane.proxy);
  lane.of = &stream;
  return lane;
}

StagedFabric::Lane& StagedFabric::lead(Stream& stream) {
  reject_capture(stream);
  Lane& lane = lane_of(stream);
  lane.is_idle = false;
  lane.is_ahead = true;
  const auto here = std::make_shared<Event>(device_);
  here->record(stream);
  lane.proxy.enqueue([here](ThreadPool&) { here->synchronize(); });
  return lane;
}

// The proxy's own waits have deadlines, and it stores the word after an error, too; so this one is not to give up before.
void StagedFabric::follow(Lane& lane, Stream& stream, int peer, Tag tag) {
  auto* const passed = reinterpret_cast<std::uint64_t*>(lane.passed.data());
  const std::uint64_t hold = ++lane.holds;
  lane.proxy.enqueue([=](ThreadPool&) { atomic_store(passed, hold); }, AfterError::run);
  WaitLimit limit = waits();
  limit.nanoseconds = static_cast<std::uint64_t>(std::chrono::nanoseconds(kLongestWait).count());
  staged::enqueue_wait(stream, limit, {rank(), peer, tag}, passed, hold);
  lane.is_ahead = false;
}

bool StagedFabric::is_in_order(const Stream& stream) const {
  const auto found = std::ranges::find_if(lanes_, [&](const auto& lane) { return lane->of == &stream; });
  return found == lanes_.end() || (!(*found)->is_ahead && std::ranges::count((*found)->unconfirmed, true) == 0);
}

void StagedFabric::send(Lane& lane, int peer, StagedRequest request, const std::byte* bytes) {
  const auto to = static_cast<std::size_t>(peer);
  const bool has_bytes = request.kind == StagedRequest::put;
  if (lane.sent[to] >= StagingArea::kSlots)
    host_->wait_next(lane.proxy, peer, &area_.way(peer, lane.number).room, "staging room");
  lane.proxy.enqueue([&lane, request, bytes, has_bytes](ThreadPool&) mutable {
    if (has_bytes) {
      enqueue_copy(*lane.copies, lane.slot.data() + StagingArea::kRequestBytes, bytes, request.bytes);
      (*lane.copies).synchronize();
    } else if (request.kind == StagedRequest::word) {
      enqueue_copy(*lane.copies, &request.value, bytes, sizeof request.value);
      (*lane.copies).synchronize();
    }
    std::memcpy(lane.slot.data(), &request, sizeof request);
  });
  host_->put(lane.proxy, peer, area_.slot(rank(), lane.number, lane.sent[to]++), lane.slot.data(),
             StagingArea::kRequestBytes + (has_bytes ? request.bytes : 0));
  host_->signal_next(lane.proxy, peer, &area_.way(rank(), lane.number).arrived);
  if (request.kind != StagedRequest::get && request.kind != StagedRequest::tell) lane.unconfirmed[to] = true;
}

void StagedFabric::confirm_all_but(Lane& lane, int peer, Tag tag) {
  std::vector<int> others;
  for (int other = 0; other < size(); ++other)
    if (other != peer && lane.unconfirmed[static_cast<std::size_t>(other)]) others.push_back(other);
  for (const int other : others) send(lane, other, {.kind = StagedRequest::tell}, nullptr);
  for (const int other : others) {
    lane.unconfirmed[static_cast<std::size_t>(other)] = false;
    host_->wait_next(lane.proxy, other, &area_.way(other, lane.number).answered, tag);
  }
}

void StagedFabric::move(Lane& lane, const Transfer& transfer) {
  if (transfer.is_put)
    move_put(lane, transfer);
  else
    move_get(lane, transfer);
}

void StagedFabric::move_put(Lane& lane, const Transfer& transfer) {
  const bool word = is_word(heap_.data() + transfer.offset, transfer.bytes);
  for (std::size_t begun = 0; begun < transfer.bytes; begun += area_.piece_bytes())
    send(lane, transfer.peer,
         {.kind = word ? StagedRequest::word : StagedRequest::put,
          .offset = transfer.offset + begun,
          .bytes = std::min(area_.piece_bytes(), transfer.bytes - begun)},
         transfer.local + begun);
}

// Asks for a piece before the one before has come.
void StagedFabric::move_get(Lane& lane, const Transfer& transfer) {
  std::uint64_t& asked = lane.asked[static_cast<std::size_t>(transfer.peer)];
  std::size_t begun = 0, come = 0;
  const auto bytes_at = [&](std::size_t begin) { return std::min(area_.piece_bytes(), transfer.bytes - begin); };
  std::uint64_t next_answer = asked;
  while (come < transfer.bytes) {
    while (begun < transfer.bytes && asked - next_answer < StagingArea::kSlots) {
      send(lane, transfer.peer,
           {.kind = StagedRequest::get, .offset = transfer.offset + begun, .bytes = bytes_at(begun), .value = asked++},
           nullptr);
      begun += bytes_at(begun);
    }
    host_->wait_next(lane.proxy, transfer.peer, &area_.way(transfer.peer, lane.number).answered, "get");
    const std::byte* const answer = area_.answer(transfer.peer, lane.number, next_answer++);
    lane.proxy.enqueue([&lane, answer, to = transfer.local + come, bytes = bytes_at(come)](ThreadPool&) {
      enqueue_copy(*lane.copies, to, answer, bytes);
      (*lane.copies).synchronize();
    });
    come += bytes_at(come);
  }
}

// A word, for which other ranks may be waiting, is written at once.
void StagedFabric::move_here(Stream& stream, const Transfer& transfer) {
  std::byte* const place = heap_.data() + transfer.offset;
  std::byte* const to = transfer.is_put ? place : transfer.local;
  const std::byte* const from = transfer.is_put ? transfer.local : place;
  if (is_word(from, transfer.bytes) && is_word(to, transfer.bytes))
    staged::enqueue_copy_word(stream, reinterpret_cast<std::uint64_t*>(to),
                              reinterpret_cast<const std::uint64_t*>(from));
  else if (to != from && transfer.bytes != 0)
    enqueue_copy(stream, to, from, transfer.bytes);
}

void StagedFabric::begin(Stream& stream, const Transfer& transfer) {
  if (transfer.peer == rank()) return;
  Lane& lane = lead(stream);
  move(lane, transfer);
  lane.begun.push_back(transfer);
}

void StagedFabric::finish(Stream& stream, const Transfer& transfer, Tag tag) {
  if (transfer.peer == rank()) return move_here(stream, transfer);
  Lane& lane = lead(stream);
  const auto of_kind = [&](const Transfer& other) { return other.is_put == transfer.is_put; };
  const auto first = std::ranges::find_if(lane.begun, of_kind);
  if (first != lane.begun.end() && *first == transfer)
    lane.begun.erase(first);
  else
    move(lane, transfer);
  follow(lane, stream, transfer.peer, tag);
}

void StagedFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "put");
  require_local(source, bytes, "put");
  const std::size_t offset = require_symmetric(*this, destination, bytes, "put");
  finish(stream, {true, peer, static_cast<std::byte*>(const_cast<void*>(source)), offset, bytes}, "put");
}

void StagedFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "get");
  require_local(destination, bytes, "get");
  const std::size_t offset = require_symmetric(*this, source, bytes, "get");
  finish(stream, {false, peer, static_cast<std::byte*>(destination), offset, bytes}, "get");
}

void StagedFabric::begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_put");
  require_local(source, bytes, "begin_put");
  const std::size_t offset = require_symmetric(*this, destination, bytes, "begin_put");
  begin(stream, {true, peer, static_cast<std::byte*>(const_cast<void*>(source)), offset, bytes});
}

void StagedFabric::begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_stream_and_peer(*this, stream, peer, "begin_get");
  require_local(destination, bytes, "begin_get");
  const std::size_t offset = require_symmetric(*this, source, bytes, "begin_get");
  begin(stream, {false, peer, static_cast<std::byte*>(destination), offset, bytes});
}

void StagedFabric::raise(Stream& stream, int peer, StagedRequest request) {
  Lane& lane = lead(stream);
  confirm_all_but(lane, peer, "signal");
  if (peer != rank()) return send(lane, peer, request, nullptr);
  follow(lane, stream, peer, "signal");
  auto* const flag = reinterpret_cast<std::uint64_t*>(heap_.data() + request.offset);
  if (request.kind == StagedRequest::set)
    staged::enqueue_set(stream, flag, request.value);
  else
    staged::enqueue_add(stream, flag, request.value);
}

void StagedFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal");
  const std::size_t offset = require_flag(*this, flag, "signal");
  raise(stream, peer, {.kind = StagedRequest::set, .offset = offset, .value = value});
}

void StagedFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_stream_and_peer(*this, stream, peer, "signal_add");
  const std::size_t offset = require_flag(*this, flag, "signal_add");
  raise(stream, peer, {.kind = StagedRequest::add, .offset = offset, .value = value});
}

void StagedFabric::wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait");
  require_flag(*this, flag, "wait");
  reject_capture(stream);
  staged::enqueue_wait(stream, waits(), {rank(), from, tag}, flag, target);
}

void StagedFabric::wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait_next");
  require_semaphore(*this, semaphore, "wait_next");
  reject_capture(stream);
  staged::enqueue_wait_next(stream, waits(), {rank(), from, tag}, semaphore);
}

void StagedFabric::fence(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "fence");
  reject_capture(stream);
  if (is_in_order(stream)) return;
  Lane& lane = lead(stream);
  confirm_all_but(lane, -1, "fence");
  follow(lane, stream, rank(), "fence");
}

void StagedFabric::barrier(Stream& stream, std::span<const int> team) {
  require_stream_and_peer(*this, stream, rank(), "barrier");
  require_team(team, size(), rank(), "barrier");
  Lane& lane = lead(stream);
  confirm_all_but(lane, -1, "barrier");
  host_->barrier(lane.proxy, team);
  follow(lane, stream, rank(), "barrier");
}

void StagedFabric::synchronize(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "synchronize");
  const auto found = std::ranges::find_if(lanes_, [&](const auto& lane) { return lane->of == &stream; });
  if (found != lanes_.end()) {
    Lane& lane = **found;
    lane.begun.clear();
    lane.is_idle = true;
    try {
      host_->synchronize(lane.proxy);
    } catch (const std::exception&) {
      report(record(), {rank(), rank(), kLostRank}, 0, 0);  // which lets the stream go on
      throw_if_failed();                                    // a wait of the device may have been the first
      throw;
    }
  }
  stream.synchronize();
  throw_if_failed();
}

// Of its record a rank has one error, that of the wait that gave up; all others, and later ones, are those of `host_`.
void StagedFabric::throw_if_failed() {
  if (gave_up_itself(record())) {
    const std::string text = what_gave_up(record(), waits().nanoseconds);
    host_->abandon(text);
    throw Timeout(text);
  }
  host_->synchronize(idle_);
}

}  // namespace heddle

#include "fabric/hierarchical/hierarchical_fabric.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "fabric/call_checks.h"

namespace heddle {

HierarchicalFabric::HierarchicalFabric(std::unique_ptr<Fabric> inside, std::unique_ptr<Fabric> across, int first)
    : inside_(std::move(inside)), across_(std::move(across)), first_(first) {
  require(inside_->device() == across_->device(), "hierarchical: {} is of {}, {} of {}", inside_->name(),
          name_of(inside_->device()), across_->name(), name_of(across_->device()));
  require(first >= 0 && first + inside_->rank() == across_->rank() && first + inside_->size() <= across_->size(),
          "hierarchical: rank {} of {} is rank {} of the {} on a machine that begins with rank {}", across_->rank(),
          across_->size(), inside_->rank(), inside_->size(), first);
  idle_ = device().kind == DeviceKind::cpu ? std::make_unique<Stream>(pool_) : std::make_unique<Stream>(device());
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

HierarchicalFabric::~HierarchicalFabric() {
  watch_ = {};
  across_.reset();  // whose messages are written into the memory of the other
}

bool HierarchicalFabric::has(Capability capability) const {
  switch (capability) {
    case Capability::several_machines:
      return true;
    case Capability::peer_addresses:
    case Capability::device_initiated:
      return inside_->size() == size() && inside_->has(capability);
    case Capability::vendor_collectives:
      return false;
  }
  return false;
}

// Where all ranks meet; a rank that has given up inside would be missed in vain.
SymmetricSpan HierarchicalFabric::allocate(std::size_t size_bytes) try {
  const SymmetricSpan span = across_->allocate(size_bytes);
  require(inside_->offset_of(span.data, span.size_bytes).has_value(), "hierarchical: the heap of {} is not that of {}",
          across_->name(), inside_->name());
  return span;
} catch (...) {
  pass_on_failure();
  throw;
}

Peers HierarchicalFabric::peers(std::span<const int> team) const {
  require_team(team, size(), rank(), "peers");
  for (const int peer : team)
    require(is_near(peer),
            "peers: rank {} is on another machine than rank {}: memory there is reached by put and get alone", peer,
            rank());
  return inside_->peers(inside_ranks(team));
}

Ranks HierarchicalFabric::addressable() const {
  Ranks ranks = inside_->addressable();
  for (int& rank : ranks) rank += first_;
  return ranks;
}

Ranks HierarchicalFabric::inside_ranks(std::span<const int> team) const {
  Ranks ranks(team.begin(), team.end());
  for (int& rank : ranks) rank -= first_;
  return ranks;
}

HierarchicalFabric::Way HierarchicalFabric::way_to(const Stream& stream, int peer, std::string_view operation) const {
  require_stream_and_peer(*this, stream, peer, operation);
  return is_near(peer) ? Way{*inside_, peer - first_} : Way{*across_, peer};
}

HierarchicalFabric::Way HierarchicalFabric::way_of_signal(Stream& stream, int peer, std::string_view operation) {
  const Way way = way_to(stream, peer, operation);
  (&way.fabric == inside_.get() ? across_ : inside_)->fence(stream);
  return way;
}

void HierarchicalFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_symmetric(*this, destination, bytes, "put");
  const auto [fabric, there] = way_to(stream, peer, "put");
  fabric.put(stream, there, destination, source, bytes);
}

void HierarchicalFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_symmetric(*this, source, bytes, "get");
  const auto [fabric, there] = way_to(stream, peer, "get");
  fabric.get(stream, there, destination, source, bytes);
}

void HierarchicalFabric::begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_symmetric(*this, destination, bytes, "begin_put");
  const auto [fabric, there] = way_to(stream, peer, "begin_put");
  fabric.begin_put(stream, there, destination, source, bytes);
}

void HierarchicalFabric::begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  require_symmetric(*this, source, bytes, "begin_get");
  const auto [fabric, there] = way_to(stream, peer, "begin_get");
  fabric.begin_get(stream, there, destination, source, bytes);
}

void HierarchicalFabric::signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_flag(*this, flag, "signal");
  const auto [fabric, there] = way_of_signal(stream, peer, "signal");
  fabric.signal(stream, there, flag, value);
}

void HierarchicalFabric::signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) {
  require_flag(*this, flag, "signal_add");
  const auto [fabric, there] = way_of_signal(stream, peer, "signal_add");
  fabric.signal_add(stream, there, flag, value);
}

void HierarchicalFabric::wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait");
  require_flag(*this, flag, "wait");
  across_->wait(stream, from, flag, target, tag);
}

void HierarchicalFabric::wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) {
  require_stream_and_peer(*this, stream, from, "wait_next");
  require_semaphore(*this, semaphore, "wait_next");
  across_->wait_next(stream, from, semaphore, tag);
}

void HierarchicalFabric::fence(Stream& stream) {
  require_stream_and_peer(*this, stream, rank(), "fence");
  across_->fence(stream);
  inside_->fence(stream);
}

void HierarchicalFabric::barrier(Stream& stream, std::span<const int> team) {
  require_stream_and_peer(*this, stream, rank(), "barrier");
  require_team(team, size(), rank(), "barrier");
  if (std::ranges::all_of(team, [this](int peer) { return is_near(peer); })) {
    across_->fence(stream);
    inside_->barrier(stream, inside_ranks(team));
  } else {
    inside_->fence(stream);
    across_->barrier(stream, team);
  }
}

void HierarchicalFabric::abandon(std::string_view cause) {
  across_->abandon(cause);
  inside_->abandon(cause);
}

void HierarchicalFabric::synchronize(Stream& stream) try {
  across_->synchronize(stream);
  inside_->synchronize(stream);
} catch (...) {
  pass_on_failure();
  throw;
}

void HierarchicalFabric::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  while (!wake_.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); }))
    if (pass_on_failure()) return;
}

bool HierarchicalFabric::pass_on_failure() {
  const std::lock_guard lock(mutex_);
  const std::pair<Fabric&, Fabric&> ways[] = {{*inside_, *across_}, {*across_, *inside_}};
  for (const auto& [from, to] : ways) {
    try {
      from.synchronize(*idle_);
    } catch (const std::exception& error) {
      to.abandon(error.what());
      return true;
    }
  }
  return false;
}

}  // namespace heddle

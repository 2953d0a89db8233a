#include "fabric/counted_fabric.h"

namespace heddle {

void CountedFabric::put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  inner_->put(stream, peer, destination, source, bytes);
  put_bytes_[static_cast<std::size_t>(peer)] += static_cast<std::int64_t>(bytes);
}

void CountedFabric::get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) {
  inner_->get(stream, peer, destination, source, bytes);
  got_bytes_[static_cast<std::size_t>(peer)] += static_cast<std::int64_t>(bytes);
}

void CountedFabric::barrier(Stream& stream, std::span<const int> team) {
  inner_->barrier(stream, team);
  ++barriers_;
  barriers_of_all_ += static_cast<int>(team.size()) == size();
}

}  // namespace heddle

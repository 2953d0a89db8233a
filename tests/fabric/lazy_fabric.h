// The laziest fabric that fabric.h allows: the bytes of a put leave when its stream next signals, fences or enters a barrier, and
// not before. So whoever counts on more than that order promises sees old bytes, each time.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fabric/counted_fabric.h"

namespace heddle {

// On the CPU. A word, which a peer may wait for, is put at once, and so is what a rank puts to itself.
class LazyFabric final : public CountedFabric {
 public:
  explicit LazyFabric(std::unique_ptr<Fabric> inner) : CountedFabric(*inner), inner_(std::move(inner)) {}

  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override {
    if (bytes <= sizeof(std::uint64_t) || peer == rank()) return inner_->put(stream, peer, destination, source, bytes);
    inner_->put(stream, peer, destination, source, 0);  // checks
    auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    stream.enqueue([copy, source](ThreadPool&) {
      const auto* const first = static_cast<const std::byte*>(source);
      copy->assign(first, first + copy->size());
    });
    const std::lock_guard lock(mutex_);
    held_[&stream].push_back({peer, destination, std::move(copy)});
  }
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override {
    deliver(stream);
    inner_->signal(stream, peer, flag, value);
  }
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override {
    deliver(stream);
    inner_->signal_add(stream, peer, flag, value);
  }
  void fence(Stream& stream) override {
    deliver(stream);
    inner_->fence(stream);
  }
  void barrier(Stream& stream, std::span<const int> team) override {
    deliver(stream);
    inner_->barrier(stream, team);
  }

 private:
  struct Put {
    int peer;
    void* destination;
    std::shared_ptr<std::vector<std::byte>> bytes;
  };

  void deliver(Stream& stream) {
    std::vector<Put> puts;
    {
      const std::lock_guard lock(mutex_);
      std::swap(puts, held_[&stream]);
    }
    for (const auto& [peer, destination, bytes] : puts) {
      inner_->put(stream, peer, destination, bytes->data(), bytes->size());
      stream.enqueue([kept = bytes](ThreadPool&) {});  // until it is put
    }
  }

  std::unique_ptr<Fabric> inner_;
  std::mutex mutex_;  // threads may put, each on its streams
  std::map<const Stream*, std::vector<Put>> held_;
};

}  // namespace heddle

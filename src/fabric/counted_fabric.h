// A fabric that counts what its rank moves, by peer: measured traffic, to hold against what a schedule says.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace heddle {

// Hands every call on to `inner`, which must outlive it. Counts the bytes of put and get when they are enqueued; flags,
// barriers and what kernels do through peers() are not counted.
class CountedFabric : public Fabric {
 public:
  explicit CountedFabric(Fabric& inner)
      : inner_(&inner), put_bytes_(static_cast<std::size_t>(inner.size())), got_bytes_(put_bytes_.size()) {}

  // By peer, since the start.
  const std::vector<std::int64_t>& put_bytes() const { return put_bytes_; }
  const std::vector<std::int64_t>& got_bytes() const { return got_bytes_; }
  int barriers() const { return barriers_; }
  int barriers_of_all() const { return barriers_of_all_; }  // of them, those of the whole world

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Device device() const override { return inner_->device(); }
  bool has(Capability capability) const override { return inner_->has(capability); }
  DeviceShare device_share() const override { return inner_->device_share(); }
  SymmetricSpan allocate(std::size_t size_bytes) override { return inner_->allocate(size_bytes); }
  void release(const SymmetricSpan& span) override { inner_->release(span); }
  std::optional<std::size_t> offset_of(const void* place, std::size_t bytes) const override {
    return inner_->offset_of(place, bytes);
  }
  Peers peers(std::span<const int> team) const override { return inner_->peers(team); }
  Ranks addressable() const override { return inner_->addressable(); }
  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override;
  void begin_put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override {
    inner_->begin_put(stream, peer, destination, source, bytes);
  }
  void begin_get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override {
    inner_->begin_get(stream, peer, destination, source, bytes);
  }
  void signal(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override {
    inner_->signal(stream, peer, flag, value);
  }
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override {
    inner_->signal_add(stream, peer, flag, value);
  }
  void wait(Stream& stream, int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) override {
    inner_->wait(stream, from, flag, target, tag);
  }
  void wait_next(Stream& stream, int from, Semaphore* semaphore, Tag tag) override {
    inner_->wait_next(stream, from, semaphore, tag);
  }
  void fence(Stream& stream) override { inner_->fence(stream); }
  void barrier(Stream& stream, std::span<const int> team) override;
  void abandon(std::string_view cause) override { inner_->abandon(cause); }
  void synchronize(Stream& stream) override { inner_->synchronize(stream); }

 private:
  Fabric* inner_;
  std::vector<std::int64_t> put_bytes_, got_bytes_;
  int barriers_ = 0, barriers_of_all_ = 0;
};

}  // namespace heddle

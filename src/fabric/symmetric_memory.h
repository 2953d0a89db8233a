// Owns a part of a fabric's symmetric heap.
#pragma once

#include <exception>
#include <utility>

#include "base/log.h"
#include "fabric/fabric.h"

namespace heddle {

// Constructed collectively (Fabric::allocate). Destroyed in the same order on every rank (Fabric::release), before the
// fabric.
class SymmetricMemory {
 public:
  SymmetricMemory() = default;
  SymmetricMemory(Fabric& fabric, std::size_t size_bytes) : fabric_(&fabric), span_(fabric.allocate(size_bytes)) {}
  SymmetricMemory(SymmetricMemory&& other) noexcept
      : fabric_(std::exchange(other.fabric_, nullptr)), span_(std::exchange(other.span_, {})) {}
  SymmetricMemory& operator=(SymmetricMemory&& other) noexcept {
    std::swap(fabric_, other.fabric_);
    std::swap(span_, other.span_);
    return *this;
  }
  ~SymmetricMemory() {
    if (fabric_ == nullptr) return;
    try {
      fabric_->release(span_);
    } catch (const std::exception& error) {  // where ranks meet next, it is found out that they differ
      log_warning("rank {}: symmetric memory is not given back: {}", fabric_->rank(), error.what());
    }
  }

  std::byte* data() const { return span_.data; }
  std::size_t size_bytes() const { return span_.size_bytes; }

 private:
  Fabric* fabric_ = nullptr;
  SymmetricSpan span_;
};

}  // namespace heddle

// Atomic operations with explicit order and scope, the same on the host and in kernels. The defaults (acq_rel, system;
// acquire for a load, release for a store) suit flags between ranks.
// T is an integer or float of 1 to 8 bytes for load and store, else an integer of 4 or 8 bytes; naturally aligned.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "base/host_device.h"

#ifdef __CUDACC__
#include <cuda/atomic>
#endif

namespace heddle {

enum class Order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

// Which threads an operation synchronises with: of the block, of the GPU, or all. The host has one scope only.
enum class Scope : std::uint8_t { block, gpu, system };

namespace detail {

#ifdef __CUDACC__
using MemoryOrder = cuda::std::memory_order;
constexpr cuda::thread_scope thread_scope(Scope scope) {
  return scope == Scope::block ? cuda::thread_scope_block
         : scope == Scope::gpu ? cuda::thread_scope_device
                               : cuda::thread_scope_system;
}
template <class T, Scope scope>
using AtomicRef = cuda::atomic_ref<T, thread_scope(scope)>;
#else
using MemoryOrder = std::memory_order;
template <class T, Scope>
using AtomicRef = std::atomic_ref<T>;
#endif

// Both enumerations have this order, but std has `consume` after `relaxed`.
constexpr MemoryOrder memory_order(Order order) {
  return static_cast<MemoryOrder>(order == Order::relaxed ? 0 : static_cast<int>(order) + 1);
}
static_assert(memory_order(Order::acquire) == MemoryOrder::acquire &&
              memory_order(Order::seq_cst) == MemoryOrder::seq_cst);

}  // namespace detail

template <Order order = Order::acquire, Scope scope = Scope::system, class T>
HEDDLE_HOST_DEVICE T atomic_load(const T* place) {
  return detail::AtomicRef<T, scope>(*const_cast<T*>(place)).load(detail::memory_order(order));
}

template <Order order = Order::release, Scope scope = Scope::system, class T>
HEDDLE_HOST_DEVICE void atomic_store(T* place, std::type_identity_t<T> value) {
  detail::AtomicRef<T, scope>(*place).store(value, detail::memory_order(order));
}

// The functions below return the value before the operation.

template <Order order = Order::acq_rel, Scope scope = Scope::system, std::integral T>
HEDDLE_HOST_DEVICE T atomic_add(T* place, std::type_identity_t<T> value) {
  return detail::AtomicRef<T, scope>(*place).fetch_add(value, detail::memory_order(order));
}

template <Order order = Order::acq_rel, Scope scope = Scope::system, std::integral T>
HEDDLE_HOST_DEVICE T atomic_exchange(T* place, std::type_identity_t<T> value) {
  return detail::AtomicRef<T, scope>(*place).exchange(value, detail::memory_order(order));
}

// Writes `value` if `expected` is there. A failed exchange is a load with the acquire part of the order.
template <Order order = Order::acq_rel, Scope scope = Scope::system, std::integral T>
HEDDLE_HOST_DEVICE T atomic_compare_exchange(T* place, std::type_identity_t<T> expected,
                                             std::type_identity_t<T> value) {
  detail::AtomicRef<T, scope>(*place).compare_exchange_strong(expected, value, detail::memory_order(order));
  return expected;
}

}  // namespace heddle

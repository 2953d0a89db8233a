// Remembers which kernels have their attributes set on which device. Setting one is a driver call: too slow for every
// launch, and it must not race with another thread's launch of the same kernel.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "device/per_device.h"

namespace heddle {

// A hash table that only grows. Reads take no lock.
class PreparedKernels {
 public:
  // Calls prepare() unless a call for this kernel and device has returned before. Others that come meanwhile wait for
  // it. Where prepare() throws, so does this, and the next one prepares.
  template <class Prepare>
  void once(const void* kernel, int device, Prepare prepare) {
    const std::uint64_t bit = std::uint64_t{1} << (device % kMaxDevices);
    if ((devices_of(kernel) & bit) != 0) return;
    const std::lock_guard lock(mutex_);
    if ((devices_of(kernel) & bit) != 0) return;
    prepare();
    add(kernel, bit);
  }

 private:
  static constexpr std::size_t kPlaces =
      1024;  // a few times the kernels of the program; those beyond are prepared again

  struct Place {
    std::atomic<const void*> kernel = nullptr;
    std::atomic<std::uint64_t> devices = 0;  // a bit each
  };

  static std::size_t first_place(const void* kernel) {
    return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(kernel) / 16 * 0x9e3779b97f4a7c15 >> 32) % kPlaces;
  }

  std::uint64_t devices_of(const void* kernel) const {
    for (std::size_t i = 0, at = first_place(kernel); i < kPlaces; ++i, at = (at + 1) % kPlaces) {
      const void* found = places_[at].kernel.load(std::memory_order_acquire);
      if (found == kernel) return places_[at].devices.load(std::memory_order_acquire);
      if (found == nullptr) return 0;
    }
    return 0;
  }

  // Under the lock.
  void add(const void* kernel, std::uint64_t bit) {
    for (std::size_t i = 0, at = first_place(kernel); i < kPlaces; ++i, at = (at + 1) % kPlaces) {
      Place& place = places_[at];
      const void* found = place.kernel.load(std::memory_order_relaxed);
      if (found != nullptr && found != kernel) continue;
      place.devices.fetch_or(bit, std::memory_order_release);
      place.kernel.store(kernel, std::memory_order_release);
      return;
    }
  }

  std::array<Place, kPlaces> places_;
  std::mutex mutex_;
};

}  // namespace heddle

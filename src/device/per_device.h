// A value per device, made once by the first thread that needs it.
#pragma once

#include <array>
#include <mutex>

#include "base/device.h"
#include "base/error.h"

namespace heddle {

inline constexpr int kMaxDevices = 64;  // of a process

// Safe to use from several threads; a static of its user.
template <class T>
class PerDevice {
 public:
  // What make() returned when the device was first asked for. Where make() throws, the next caller makes it.
  template <class Make>
  const T& get(Device device, Make make) {
    require(device.index >= 0 && device.index < kMaxDevices, "{}: at most {} devices", name_of(device), kMaxDevices);
    Entry& entry = entries_[static_cast<std::size_t>(device.index)];
    std::call_once(entry.made, [&] { entry.value = make(); });
    return entry.value;
  }

 private:
  struct Entry {
    std::once_flag made;
    T value{};
  };
  std::array<Entry, kMaxDevices> entries_;
};

}  // namespace heddle

// Whether another process of the run is alive, for processes on the same machine.
#pragma once

#include <cstdint>

namespace heddle {

// Plain data: it is sent between ranks. The start time tells a process from a later one with the same id.
struct ProcessIdentity {
  std::uint64_t machine = 0;  // of the kernel's boot and the namespace of process numbers
  std::uint64_t start_time = 0;
  std::int32_t process = 0;
  std::uint32_t reserved = 0;
};

ProcessIdentity own_process();

// A process on this machine that began then.
ProcessIdentity process_of_this_machine(std::int32_t process, std::uint64_t start_time);

enum class ProcessState : std::uint8_t { running, stopped, gone, unknown };

// Unknown if it is on another machine, or cannot be inspected.
ProcessState state_of(const ProcessIdentity& identity);

// Start time of a process of this machine, in the kernel's ticks since boot; 0 if there is none, or only a zombie.
std::uint64_t start_time_of_process(int process);

// Of a process of this machine, whenever it was started.
ProcessState state_of_process(int process);

}  // namespace heddle

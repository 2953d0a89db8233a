// A key for this machine: measurements and tuning results are valid on machines with the same key.
#pragma once

#include <string>
#include <vector>

#include "machine/cpu.h"

namespace heddle {

// "AMD EPYC 7B13; 1 socket(s), 2 core(s), 2 thread(s), 2 usable; 32 MiB last-level cache; 23 GiB; no GPU". One line of
// printable ASCII. Needs no clock and no driver.
std::string machine_key(const CpuInfo& cpu, const std::vector<std::string>& gpu_names);

// The key of this machine: discover_cpu() and installed_gpus().
std::string machine_key();

}  // namespace heddle

// Which of a machine's networks a user has chosen for a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace heddle {

// Whether `list`, as `heddle launch --interface` and Open MPI's btl_tcp_if_include take it ("eth0,10.0.0.0/24"), has
// the interface of that name or its IPv4 address, which is in the network's byte order. An empty list has all.
bool is_in_interfaces(std::string_view list, std::string_view name, std::uint32_t address);

}  // namespace heddle

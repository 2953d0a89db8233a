// Which ranks share a machine. Links inside a machine and between machines differ, so strategies place work by it.
#pragma once

namespace heddle {

// Machines of equal size, with consecutive ranks: rank r is on machine r / ranks_per_machine.
struct Placement {
  int machines = 1;
  int ranks_per_machine = 1;

  constexpr int size() const { return machines * ranks_per_machine; }
  constexpr int machine_of(int rank) const { return rank / ranks_per_machine; }
  constexpr bool share_machine(int a, int b) const { return machine_of(a) == machine_of(b); }

  friend constexpr bool operator==(const Placement&, const Placement&) = default;
};

}  // namespace heddle

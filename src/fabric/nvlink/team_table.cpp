#include "fabric/nvlink/team_table.h"

namespace heddle {

TeamTable::TeamTable(Fabric& host)
    : entries_(host.peers().at(0, reinterpret_cast<TeamEntry*>(host.allocate(kMostTeams * sizeof(TeamEntry)).data))) {}

int TeamTable::number_of(std::span<const int> team) {
  return number_of_team({entries_, kMostTeams}, team);
}

}  // namespace heddle

// Which networks `heddle launch --interface` chooses. Compiled in builds with Open MPI alone.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "fabric/mpi/tcp_interfaces.h"

namespace heddle {
namespace {

TEST(TcpInterfaces, AreChosenByNameOrByRange) {
  struct Row {
    const char* list;
    const char* name;
    const char* address;
    bool chosen;
  };
  constexpr Row kRows[] = {
      {"", "eth0", "10.1.2.3", true},  // nobody has chosen
      {"eth0", "eth0", "10.1.2.3", true},
      {"eth0", "eth01", "10.1.2.3", false},  // no prefix counts
      {"eth1,eth0", "eth0", "10.1.2.3", true},
      {"10.1.2.0/24", "eth0", "10.1.2.3", true},
      {"10.1.2.0/24", "eth0", "10.1.3.3", false},
      {"10.1.2.200/25", "eth0", "10.1.2.3", false},
      {"0.0.0.0/0", "eth0", "10.1.2.3", true},
      {"10.1.2.3/32", "eth0", "10.1.2.3", true},
      {"10.1.2.0/33", "eth0", "10.1.2.3", false},  // what is no range has nothing
      {"10.1.2/24", "eth0", "10.1.2.3", false},
      {"10.1.2.0/", "eth0", "10.1.2.3", false},
      {",,/", "eth0", "10.1.2.3", false},
  };
  for (const Row& row : kRows) {
    in_addr address{};
    ASSERT_EQ(inet_pton(AF_INET, row.address, &address), 1);
    EXPECT_EQ(is_in_interfaces(row.list, row.name, address.s_addr), row.chosen) << row.list << " has " << row.name;
  }
}

}  // namespace
}  // namespace heddle

// 06. A deadline: rank 1 never signals. Nobody hangs: those who wait for it end with an error that says who waited for
// whom, and for what.
#include "example.h"

using namespace heddle;

struct WaitForEver {
  Peers peers;
  const std::uint64_t* flag;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (peers.rank == 1) return;
    if (!wait_until(group, peers, /*from=*/1, flag, 7, "a promise")) return;  // a kernel returns; the host will throw
  }
};

void rank_main(Fabric& fabric, Stream& stream) {
  auto* flag = example::allocate<std::uint64_t>(fabric);
  enqueue_body(stream, {}, WaitForEver{fabric.peers(), flag});
  fabric.synchronize(stream);  // throws Timeout
}

// Where a kernel with clusters may run beside kernels that hold SMs.
#pragma once

namespace heddle {

// Whether a cluster of so many blocks, one an SM, can be scheduled on any `num_sms` free SMs. The SMs of a cluster belong
// to one GPC, and an H200 has 8 GPCs: where each of them has fewer free SMs than the cluster has blocks, there is no room.
constexpr bool hold_a_cluster(int num_sms, int cluster) {
  constexpr int kGpcs = 8;
  return num_sms > kGpcs * (cluster - 1);
}
constexpr bool hold_a_pair(int num_sms) {
  return hold_a_cluster(num_sms, 2);
}

}  // namespace heddle

// Where a kernel with clusters may run.
#pragma once

namespace heddle {

// Whether a cluster of so many blocks can be scheduled on any `num_sms` free SMs. The SMs of a cluster belong to one
// GPC, and an H200 has 8 GPCs: of 9 SMs, two belong to the same one.
constexpr bool hold_a_cluster(int num_sms, int blocks) {
  constexpr int kGpcs = 8;
  return num_sms > kGpcs * (blocks - 1);
}
constexpr bool hold_a_pair(int num_sms) {
  return hold_a_cluster(num_sms, 2);
}

}  // namespace heddle

// Where a kernel with clusters of two may run.
#pragma once

namespace heddle {

// Whether a cluster of two can be scheduled on any `num_sms` free SMs. The SMs of a cluster belong to one GPC, and an
// H200 has 8 GPCs: of 9 SMs, two belong to the same one.
constexpr bool hold_a_pair(int num_sms) {
  constexpr int kGpcs = 8;
  return num_sms > kGpcs;
}

}  // namespace heddle

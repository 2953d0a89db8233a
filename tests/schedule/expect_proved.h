// The proofs of src/schedule/proofs.h as expectations; a failure names the proof.
#pragma once

#include <gtest/gtest.h>

#include "schedule/proofs.h"

namespace heddle::schedule {

inline constexpr int kLargestTeam = 64;

template <class S>
void expect_exchange(const S& s) {
  EXPECT_TRUE(peers_agree(s));
  EXPECT_TRUE(nobody_waits_on_itself(s));
  EXPECT_TRUE(traffic_is_the_formula(s));
}
template <class S>
void expect_gather(const S& s) {
  expect_exchange(s);
  EXPECT_TRUE(only_sends_what_it_has(s));
  EXPECT_TRUE(every_piece_arrives_once(s));
}
template <class S>
void expect_reduce(const S& s) {
  expect_exchange(s);
  EXPECT_TRUE(every_contribution_arrives_once(s));
}

}  // namespace heddle::schedule

// What every fabric must do, as functions of a rank. All ranks run the same cases in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "conformance/context.h"

namespace heddle::conformance {

// Of which ranks a case needs the addresses.
enum class Addresses : std::uint8_t { of_none, of_some, of_all };

struct Case {
  std::string_view name;
  void (*run)(Context&);  // throws CheckFailed, or what the fabric throws
  int min_ranks = 1;
  Addresses needs = Addresses::of_none;
};

std::span<const Case> all_cases();

// Why the case cannot run on this fabric; "" if it can.
std::string_view reason_to_skip(const Case& one, const Fabric& fabric);

// One iteration after another with random delays on random ranks: put, signal, wait, and a barrier now and then.
void soak(Context& context, int iterations);

// A program with delays between its kernels, and one with delays inside, so many times one by one, then captured once
// and replayed as often: each run's messages must be that run's, and the bits of both the same (replay_cases.cpp).
void soak_of_replays(Context& context, int replays);

// transfer_cases.cpp
void put_to_a_neighbour(Context& context);
void put_to_everybody(Context& context);
void puts_begun_ahead(Context& context);
void begun_puts_end_with_synchronize(Context& context);
void get_from_a_neighbour(Context& context);
void gets_begun_ahead(Context& context);
void begun_gets_end_with_synchronize(Context& context);
void allocations_are_zero_and_aligned(Context& context);
void unequal_allocations_are_refused(Context& context);
void capabilities_are_true(Context& context);
void bad_arguments_are_refused(Context& context);

// order_cases.cpp
void signal_sets(Context& context);
void signal_add_adds(Context& context);
void fence_orders_puts(Context& context);
void barrier_of_the_world(Context& context);
void barriers_of_sub_teams(Context& context);
void barriers_on_two_streams(Context& context);
void message_passing(Context& context);
void message_to_a_third(Context& context);
void messages_are_causal(Context& context);
void flags_are_used_again(Context& context);
void store_buffering_with_barrier(Context& context);

// fence_cases.cpp
void fence_orders_a_polled_put(Context& context);
void fence_reaches_a_third(Context& context);
void fence_between_a_put_and_a_get(Context& context);

// replay_cases.cpp
void semaphores_count_messages(Context& context);
void programs_run_again_and_again(Context& context);
void device_semaphores(Context& context);
void captured_values_are_rejected(Context& context);

// group_cases.cpp
void groups_wait_apart(Context& context);

// device_cases.cpp: the vocabulary of one_sided.h and atomics.h, from whatever a stream drives
void device_moves_bytes(Context& context);
void device_waits(Context& context);
void store_buffering(Context& context);
void atomics_under_contention(Context& context);
void team_peers_are_the_teams(Context& context);
void a_word_is_put_at_once(Context& context);

}  // namespace heddle::conformance

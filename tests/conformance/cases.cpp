#include "conformance/cases.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace heddle::conformance {

std::span<const Case> all_cases() {
  static constexpr Case kCases[] = {
      {"capabilities", capabilities_are_true},
      {"allocate", allocations_are_zero_and_aligned},
      {"allocate_unequal", unequal_allocations_are_refused, 2},
      {"bad_arguments", bad_arguments_are_refused},
      {"put", put_to_a_neighbour},
      {"put_to_all", put_to_everybody},
      {"put_begun", puts_begun_ahead},
      {"put_begun_alone", begun_puts_end_with_synchronize},
      {"get", get_from_a_neighbour},
      {"get_begun", gets_begun_ahead},
      {"get_begun_alone", begun_gets_end_with_synchronize},
      {"signal", signal_sets},
      {"signal_add", signal_add_adds},
      {"fence", fence_orders_puts},
      {"fence_polled_put", fence_orders_a_polled_put},
      {"fence_third", fence_reaches_a_third, 3},
      {"fence_put_get", fence_between_a_put_and_a_get},
      {"barrier", barrier_of_the_world},
      {"barrier_teams", barriers_of_sub_teams, 2},
      {"barrier_streams", barriers_on_two_streams, 3},
      {"message_passing", message_passing},
      {"message_to_a_third", message_to_a_third, 3},
      {"causality", messages_are_causal, 3},
      {"flag_reuse", flags_are_used_again},
      {"store_buffering_barrier", store_buffering_with_barrier, 2},
      {"store_buffering", store_buffering, 2, Addresses::of_all},
      {"device_copies", device_moves_bytes, 1, Addresses::of_all},
      {"device_waits", device_waits, 1, Addresses::of_all},
      {"device_atomics", atomics_under_contention, 1, Addresses::of_all},
      {"device_teams", team_peers_are_the_teams, 1, Addresses::of_some},
      {"semaphore", semaphores_count_messages},
      {"replay", programs_run_again_and_again},
      {"replay_rejects_values", captured_values_are_rejected},
      {"device_semaphores", device_semaphores, 1, Addresses::of_all},
      {"device_word", a_word_is_put_at_once, 1, Addresses::of_all},
      {"device_groups", groups_wait_apart, 1, Addresses::of_all},
  };
  return kCases;
}

std::string_view reason_to_skip(const Case& one, const Fabric& fabric) {
  if (fabric.size() < one.min_ranks) return "needs more ranks";
  if (one.needs == Addresses::of_all && !fabric.has(Capability::peer_addresses)) return "needs peer addresses";
  if (one.needs == Addresses::of_some && fabric.addressable().empty()) return "needs addresses of some ranks";
  return {};
}

void soak(Context& context, int iterations) {
  context.clear_flags();
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  std::mt19937_64 shared(context.options().seed);  // the same numbers on every rank
  std::mt19937_64 own(context.options().seed * 1000 + 1 + static_cast<std::uint64_t>(context.rank()));  // its delays
  const auto delay = [&] {
    if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
  };
  const auto any_distance = [&] { return static_cast<int>(shared() % static_cast<std::uint64_t>(context.size())); };
  constexpr int kTaken = 8;  // flag kTaken + r: what rank r has read of mine
  int distance = any_distance();
  for (int i = 1; i <= iterations; ++i) {
    const auto epoch = static_cast<std::uint64_t>(i);
    const int to = context.next(distance);
    const int from = context.previous(distance);
    const std::size_t size_bytes = 1 + shared() % std::min<std::size_t>(context.options().largest_bytes, 1 << 16);
    const std::size_t offset = shared() % 64;
    const bool with_barrier = shared() % 4 == 0;
    const auto seed_of = [&](int sender) { return epoch * 100 + static_cast<std::uint64_t>(sender); };

    delay();
    context.write(context.own(), pattern(size_bytes, seed_of(context.rank())));
    fabric.put(stream, to, context.left() + offset, context.own(), size_bytes);
    fabric.signal(stream, to, context.flag(0), epoch);
    delay();
    fabric.wait(stream, from, context.flag(0), epoch, "soak put");
    expect_bytes(context.read(context.left() + offset, size_bytes), pattern(size_bytes, seed_of(from)),
                 fmt::format("iteration {}, {} bytes from rank {}", i, size_bytes, from));
    // Who writes here next, another perhaps, must know that this was read.
    distance = any_distance();
    if (with_barrier) {
      fabric.barrier(stream);
    } else {
      fabric.signal(stream, context.previous(distance), context.flag(kTaken + context.rank()), epoch);
      fabric.wait(stream, context.next(distance), context.flag(kTaken + context.next(distance)), epoch, "soak taken");
    }
  }
  context.meet();
}

}  // namespace heddle::conformance

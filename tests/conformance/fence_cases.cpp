// A fence: puts before it are at their peers before any later operation begins.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/copy.h"
#include "conformance/cases.h"

namespace heddle::conformance {
namespace {

constexpr std::size_t kNumberBytes = sizeof(std::uint64_t);
constexpr int kMostRounds = 200;

std::uint64_t* number_at(std::byte* area, std::size_t index) {
  return reinterpret_cast<std::uint64_t*>(area) + index;
}

int rounds_of(const Context& context) {
  return std::clamp(context.rounds() / 10, 10, kMostRounds);
}

// 1, 2, ...: what is put as a flag's next value. Of this rank alone, though in symmetric memory.
void fill_with_numbers(Context& context, std::byte* area, int count) {
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  context.write(area, std::as_bytes(std::span(numbers)));
}

}  // namespace

void fence_orders_a_polled_put(Context& context) {
  // Many bytes, a fence, and a word that is put, not signalled: a rank that has waited for the word sees the bytes.
  context.clear_flags();
  const int rounds = rounds_of(context);
  const std::size_t large = context.options().largest_bytes;
  fill_with_numbers(context, context.right(), rounds);
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (int round = 1; round <= rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round);
    const auto bytes_of = [&](int rank) { return pattern(large, epoch * 1000 + static_cast<std::uint64_t>(rank)); };
    context.write(context.own(), bytes_of(context.rank()));
    fabric.put(stream, context.next(), context.left(), context.own(), large);
    fabric.fence(stream);
    fabric.put(stream, context.next(), context.flag(0), number_at(context.right(), epoch - 1), kNumberBytes);
    fabric.wait(stream, context.previous(), context.flag(0), epoch, "fenced word");
    expect_bytes(context.read(context.left(), large), bytes_of(context.previous()),
                 fmt::format("round {}: put, fence, put of the word that was waited for", round));
    fabric.signal(stream, context.previous(), context.flag(1), epoch);
    fabric.wait(stream, context.next(), context.flag(1), epoch, "taken");
  }
  context.meet();
}

void fence_reaches_a_third(Context& context) {
  // Each rank puts bytes to the next and, behind a fence, a word to the one after that, which gets them from the next.
  context.clear_flags();
  const int rounds = rounds_of(context);
  const std::size_t large = context.options().largest_bytes;
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const std::uint64_t* const numbers =
      number_at(context.own(), large / kNumberBytes - static_cast<std::size_t>(kMostRounds));
  fill_with_numbers(context, reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(numbers)), rounds);
  const std::size_t size_bytes = large - static_cast<std::size_t>(kMostRounds + 1) * kNumberBytes;
  for (int round = 1; round <= rounds; ++round) {
    const auto epoch = static_cast<std::uint64_t>(round);
    const auto bytes_of = [&](int rank) {
      return pattern(size_bytes, epoch * 1000 + static_cast<std::uint64_t>(rank));
    };
    context.write(context.own(), bytes_of(context.rank()));
    fabric.put(stream, context.next(), context.left(), context.own(), size_bytes);
    fabric.fence(stream);
    fabric.put(stream, context.next(2), context.flag(0), numbers + epoch - 1, kNumberBytes);
    fabric.wait(stream, context.previous(2), context.flag(0), epoch, "fenced word");
    fabric.get(stream, context.previous(), context.right(), context.left(), size_bytes);
    expect_bytes(context.read(context.right(), size_bytes), bytes_of(context.previous(2)),
                 fmt::format("round {}: put, fence, put to a third, get from the one between", round));
    fabric.signal(stream, context.previous(2), context.flag(1), epoch);
    fabric.wait(stream, context.next(2), context.flag(1), epoch, "taken");
  }
  context.meet();
}

void fence_between_a_put_and_a_get(Context& context) {
  // Each rank puts a word to the next, fences, and gets its own. In whatever order that happens, the rank whose put
  // came last sees what it was given: not all can miss it.
  const int rounds = kMostRounds;  // each is short, and one that shows a missing fence needs luck
  const auto count = static_cast<std::size_t>(rounds);
  fill_with_numbers(context, context.own(), rounds);
  context.write(context.left(), Bytes(kNumberBytes));
  context.meet();
  std::vector<std::uint64_t> seen(count);
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  for (std::size_t round = 0; round < count; ++round) {
    fabric.put(stream, context.next(), context.left(), number_at(context.own(), round), kNumberBytes);
    fabric.fence(stream);
    fabric.get(stream, context.rank(), context.right(), context.left(), kNumberBytes);
    enqueue_copy(stream, &seen[round], context.right(), kNumberBytes);
    fabric.barrier(stream);
  }
  fabric.synchronize(stream);
  // Rank 0 looks at what all have seen.
  context.write(context.own(), std::as_bytes(std::span(seen)));
  const std::size_t mine = static_cast<std::size_t>(context.rank()) * count;
  fabric.put(stream, 0, number_at(context.left(), mine), context.own(), count * kNumberBytes);
  context.meet();
  if (context.rank() == 0) {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(context.size()) * count);
    const Bytes bytes = context.read(context.left(), all.size() * kNumberBytes);
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (std::size_t round = 0; round < count; ++round) {
      bool one = false;
      for (std::size_t i = round; i < all.size(); i += count) one = one || all[i] == round + 1;
      expect(one, "round {}: every rank has missed what was put to it before a fence", round);
    }
  }
  context.meet();
}

}  // namespace heddle::conformance

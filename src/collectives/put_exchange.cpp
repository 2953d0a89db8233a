#include "collectives/put_exchange.h"

#include <algorithm>
#include <cstring>

#include "collectives/direct.cuh"
#include "collectives/dispatch.cuh"
#include "collectives/message_collectives.h"
#include "schedule/make_schedule.h"

namespace heddle {
namespace {

struct Bytes {
  const std::byte* data;
  std::size_t size;
};

// Puts piece(p) into slot `rank` of each other rank p, and waits until all slots here are filled. Returns the number
// that names the slots. They are written again two exchanges later, by ranks that have ended the exchange in between
// and so have heard from this rank, which by then had used the slots.
template <class Piece>
std::uint64_t exchange(Communicator& communicator, Tag tag, Stream& stream, const Piece& piece) {
  Fabric& fabric = communicator.fabric();
  const int n = communicator.size(), rank = communicator.rank();
  const std::uint64_t sequence = communicator.next_put();
  const auto world_rank = [&](int p) { return communicator.team()[static_cast<std::size_t>(p)]; };
  const auto order = make_schedule<schedule::AllToAll>(n);
  for (int step = 1; step < n; ++step) {
    const int peer = order.at(rank, step).to;
    const Bytes bytes = piece(peer);
    if (bytes.size != 0)
      fabric.put(stream, world_rank(peer), communicator.put_slot(sequence, rank), bytes.data, bytes.size);
    fabric.signal(stream, world_rank(peer), communicator.put_flag(rank), sequence);
  }
  for (int step = 1; step < n; ++step) {
    const int peer = order.at(rank, step).from;
    fabric.wait(stream, world_rank(peer), communicator.put_flag(peer), sequence, tag);
  }
  return sequence;
}

// Enqueues: destination = the sum over ranks p of slot p, with `own` in place of this rank's slot.
void enqueue_sum(const Communicator& communicator, std::uint64_t sequence, DType dtype, const std::byte* own,
                 std::byte* destination, std::size_t bytes, Stream& stream) {
  stream.enqueue([&communicator, sequence, dtype, own, destination, bytes](ThreadPool&) {
    const auto source = [&](int p) -> const std::byte* {
      return p == communicator.rank() ? own : communicator.put_slot(sequence, p);
    };
    with_element(dtype, [&]<class T>() {
      sum_to<T, 1>(
          HostThread{}, communicator.size(), source, 1, [&](int) { return destination; }, bytes);
    });
  });
}

// Enqueues: destination(p) = the first size(p) bytes of slot p, for every other rank.
template <class Place>
void enqueue_keep(const Communicator& communicator, std::uint64_t sequence, Stream& stream, const Place& place) {
  stream.enqueue([&communicator, sequence, place](ThreadPool&) {
    for (int p = 0; p < communicator.size(); ++p) {
      if (p == communicator.rank()) continue;
      const auto [destination, bytes] = place(p);
      if (bytes != 0) std::memcpy(destination, communicator.put_slot(sequence, p), bytes);
    }
  });
}

void enqueue_own(std::byte* destination, const std::byte* source, std::size_t bytes, Stream& stream) {
  if (destination == source || bytes == 0) return;
  stream.enqueue([=](ThreadPool&) { std::memcpy(destination, source, bytes); });
}

// Up to this size every rank sends its whole input to all others: one exchange in place of two.
constexpr std::size_t kOneExchange = std::size_t{16} << 10;

}  // namespace

void all_reduce_by_puts(Communicator& communicator, const AllReduceParams& params, Stream& stream) {
  if (messages_of(communicator) != nullptr) return all_reduce_by_messages(communicator, params, stream);
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  const int n = communicator.size(), rank = communicator.rank();
  if (bytes <= std::min(kOneExchange, communicator.put_slot_bytes())) {
    const auto slots = exchange(communicator, "all-reduce", stream, [&](int) { return Bytes{input, bytes}; });
    enqueue_sum(communicator, slots, params.dtype, input, output, bytes, stream);
    return;
  }
  const std::size_t round = communicator.put_slot_bytes() * static_cast<std::size_t>(n);
  for (std::size_t begin = 0; begin < bytes; begin += round) {
    const EvenPieces pieces{std::min(round, bytes - begin), n};
    const auto* const from = input + begin;
    auto* const to = output + begin;
    const std::size_t mine = pieces.begin(rank);
    const auto shares = exchange(communicator, "all-reduce 1", stream, [&](int p) {
      return Bytes{from + pieces.begin(p), pieces.size(p)};
    });
    enqueue_sum(communicator, shares, params.dtype, from + mine, to + mine, pieces.size(rank), stream);
    const auto sums = exchange(communicator, "all-reduce 2", stream, [&](int) {
      return Bytes{to + mine, pieces.size(rank)};
    });
    enqueue_keep(communicator, sums, stream, [=](int p) { return std::pair(to + pieces.begin(p), pieces.size(p)); });
  }
}

void reduce_scatter_by_puts(Communicator& communicator, const ReduceScatterParams& params, Stream& stream) {
  if (messages_of(communicator) != nullptr) return reduce_scatter_by_messages(communicator, params, stream);
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype), round = communicator.put_slot_bytes();
  for (std::size_t begin = 0; begin < bytes; begin += round) {
    const std::size_t size = std::min(round, bytes - begin);
    const auto piece = [&](int p) { return input + static_cast<std::size_t>(p) * bytes + begin; };
    const auto slots = exchange(communicator, "reduce-scatter", stream, [&](int p) { return Bytes{piece(p), size}; });
    enqueue_sum(communicator, slots, params.dtype, piece(communicator.rank()), output + begin, size, stream);
  }
}

void all_gather_by_puts(Communicator& communicator, const AllGatherParams& params, Stream& stream) {
  if (messages_of(communicator) != nullptr) return all_gather_by_messages(communicator, params, stream);
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype), round = communicator.put_slot_bytes();
  for (std::size_t begin = 0; begin < bytes; begin += round) {
    const std::size_t size = std::min(round, bytes - begin);
    const auto slots = exchange(communicator, "all-gather", stream, [&](int) { return Bytes{input + begin, size}; });
    enqueue_keep(communicator, slots, stream,
                 [=](int p) { return std::pair(output + static_cast<std::size_t>(p) * bytes + begin, size); });
  }
  enqueue_own(output + static_cast<std::size_t>(communicator.rank()) * bytes, input, bytes, stream);
}

void all_to_all_by_puts(Communicator& communicator, const AllToAllParams& params, Stream& stream) {
  if (messages_of(communicator) != nullptr) return all_to_all_by_messages(communicator, params, stream);
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype), round = communicator.put_slot_bytes();
  for (std::size_t begin = 0; begin < bytes; begin += round) {
    const std::size_t size = std::min(round, bytes - begin);
    const auto slots = exchange(communicator, "all-to-all", stream, [&](int p) {
      return Bytes{input + static_cast<std::size_t>(p) * bytes + begin, size};
    });
    enqueue_keep(communicator, slots, stream,
                 [=](int p) { return std::pair(output + static_cast<std::size_t>(p) * bytes + begin, size); });
  }
  const std::size_t own = static_cast<std::size_t>(communicator.rank()) * bytes;
  enqueue_own(output + own, input + own, bytes, stream);
}

// The root sends piece p to rank p, which sends it to all: the root's link carries everything at most twice, not N - 1
// times.
void broadcast_by_puts(Communicator& communicator, const BroadcastParams& params, Stream& stream) {
  if (messages_of(communicator) != nullptr) return broadcast_by_messages(communicator, params, stream);
  const auto* const input = static_cast<const std::byte*>(params.input);
  auto* const output = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  const int n = communicator.size(), rank = communicator.rank(), root = params.root;
  const std::size_t round = communicator.put_slot_bytes() * static_cast<std::size_t>(n);
  for (std::size_t begin = 0; begin < bytes; begin += round) {
    const EvenPieces pieces{std::min(round, bytes - begin), n};
    const auto* const from = input + begin;
    const auto first = exchange(communicator, "broadcast 1", stream, [&](int p) {
      return rank == root ? Bytes{from + pieces.begin(p), pieces.size(p)} : Bytes{nullptr, 0};
    });
    // Copied out of the slot before the second exchange signals that it is free.
    std::byte* const to = output + begin;
    const std::byte* const mine = (rank == root ? from : to) + pieces.begin(rank);
    if (rank != root)
      enqueue_own(to + pieces.begin(rank), communicator.put_slot(first, root), pieces.size(rank), stream);
    const auto second = exchange(communicator, "broadcast 2", stream, [&](int p) {
      return p == root ? Bytes{nullptr, 0} : Bytes{mine, pieces.size(rank)};
    });
    if (rank == root) continue;
    enqueue_keep(communicator, second, stream, [=](int p) { return std::pair(to + pieces.begin(p), pieces.size(p)); });
  }
  if (rank == root) enqueue_own(output, input, bytes, stream);
}

}  // namespace heddle

// Puts and gets move exactly the bytes asked for; invalid arguments are rejected.
#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "conformance/cases.h"

namespace heddle::conformance {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
// Around the widths of words, vectors, lines and pages, and what a block of a GPU copies at once.
constexpr std::array<std::size_t, 27> kSizes = {0,
                                                1,
                                                2,
                                                3,
                                                4,
                                                7,
                                                8,
                                                15,
                                                16,
                                                17,
                                                31,
                                                63,
                                                64,
                                                65,
                                                255,
                                                256,
                                                257,
                                                1000,
                                                4095,
                                                4097,
                                                16 * kKiB,
                                                65537,
                                                300 * kKiB + 5,
                                                kMiB,
                                                8 * kMiB + 1,
                                                64 * kMiB,
                                                256 * kMiB};

// Both ends aligned, both off by the same, one off, both off by different numbers of bytes.
struct Offsets {
  std::size_t from;
  std::size_t to;
};
constexpr std::array<Offsets, 6> kOffsets = {{{0, 0}, {3, 3}, {0, 1}, {8, 0}, {5, 2}, {4, 12}}};

std::size_t largest_offset() {
  return 64;
}

// Each size with two pairs of offsets, which take turns.
template <class Try>
void for_each_shape(const Options& options, Try&& attempt) {
  std::size_t turn = 0;
  for (const std::size_t size_bytes : kSizes) {
    if (size_bytes > options.largest_bytes) break;
    const std::size_t tries = size_bytes <= kMiB ? 2 : 1;
    for (std::size_t i = 0; i < tries; ++i) attempt(size_bytes, kOffsets[turn++ % kOffsets.size()]);
  }
}

std::uint64_t seed_of(int rank, std::size_t shape) {
  return shape * 128 + static_cast<std::uint64_t>(rank);
}

// What is moved in a row: less than a message of the fabric mpi, as much as one, and several.
constexpr std::size_t kRowBytes[] = {1, 61440, 0, 70001, 8, 150000};
constexpr std::size_t kRowRoom = 150016;

int length_of_row(const Context& context) {
  return static_cast<int>(std::min(context.options().largest_bytes / kRowRoom, std::size(kRowBytes)));
}

std::size_t bytes_in_row(int i) {
  return kRowBytes[static_cast<std::size_t>(i)];
}

std::byte* place_in_row(std::byte* area, int i) {
  return area + static_cast<std::size_t>(i) * kRowRoom;
}

}  // namespace

void put_to_a_neighbour(Context& context) {
  context.clear_flags();
  std::uint64_t shape = 0;
  for_each_shape(context.options(), [&](std::size_t size_bytes, Offsets offsets) {
    ++shape;
    // The bytes around the destination must stay as they are.
    const Bytes around = pattern(size_bytes + 2 * largest_offset(), shape);
    context.write(context.left() - largest_offset() + offsets.to, around);
    context.meet();
    // Out of the own memory, and out of the heap.
    std::byte* source = (shape % 2 == 0 ? context.own() : context.right()) + offsets.from;
    context.write(source, pattern(size_bytes, seed_of(context.rank(), shape)));
    context.fabric().put(context.stream(), context.next(), context.left() + offsets.to, source, size_bytes);
    context.fabric().signal(context.stream(), context.next(), context.flag(0), shape);
    context.fabric().wait(context.stream(), context.previous(), context.flag(0), shape, "put");

    const Bytes got = context.read(context.left() - largest_offset() + offsets.to, around.size());
    Bytes wanted = around;
    const Bytes sent = pattern(size_bytes, seed_of(context.previous(), shape));
    std::copy(sent.begin(), sent.end(), wanted.begin() + static_cast<std::ptrdiff_t>(largest_offset()));
    expect_bytes(got, wanted,
                 fmt::format("{} bytes (and {} on each side) from rank {}, offsets {} and {}", size_bytes,
                             largest_offset(), context.previous(), offsets.from, offsets.to));
    context.meet();
  });
}

void put_to_everybody(Context& context) {
  constexpr std::size_t kPiece = 97;
  const auto place_of = [&](int rank) { return context.left() + static_cast<std::size_t>(rank) * kPiece; };
  const auto seed = [](int from, int to) { return static_cast<std::uint64_t>(from * 100 + to); };
  context.meet();
  for (int peer = 0; peer < context.size(); ++peer) {
    context.write(context.own() + static_cast<std::size_t>(peer) * kPiece, pattern(kPiece, seed(context.rank(), peer)));
    context.fabric().put(context.stream(), peer, place_of(context.rank()),
                         context.own() + static_cast<std::size_t>(peer) * kPiece, kPiece);
  }
  context.fabric().barrier(context.stream());
  for (int peer = 0; peer < context.size(); ++peer)
    expect_bytes(context.read(place_of(peer), kPiece), pattern(kPiece, seed(peer, context.rank())),
                 fmt::format("what rank {} put to everybody", peer));
  context.meet();
}

void get_from_a_neighbour(Context& context) {
  std::uint64_t shape = 0;
  for_each_shape(context.options(), [&](std::size_t size_bytes, Offsets offsets) {
    ++shape;
    context.write(context.left() + offsets.from, pattern(size_bytes, seed_of(context.rank(), shape)));
    const Bytes around = pattern(size_bytes + 2 * largest_offset(), shape);
    std::byte* destination = (shape % 2 == 0 ? context.own() : context.right()) + offsets.to;
    context.write(destination - largest_offset(), around);
    context.meet();
    context.fabric().get(context.stream(), context.next(), destination, context.left() + offsets.from, size_bytes);
    const Bytes got = context.read(destination - largest_offset(), around.size());
    Bytes wanted = around;
    const Bytes sent = pattern(size_bytes, seed_of(context.next(), shape));
    std::copy(sent.begin(), sent.end(), wanted.begin() + static_cast<std::ptrdiff_t>(largest_offset()));
    expect_bytes(got, wanted,
                 fmt::format("{} bytes (and {} on each side) of rank {}, offsets {} and {}", size_bytes,
                             largest_offset(), context.next(), offsets.from, offsets.to));
    context.meet();
  });
}

// Puts to several peers, all begun before the first is put. When each is, its source is overwritten, in stream order.
void puts_begun_ahead(Context& context) {
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const int length = length_of_row(context);
  context.clear_flags();
  for (int round = 0; round < 3; ++round) {
    const auto seed = [&](int rank, int i) { return static_cast<std::uint64_t>((round * 100 + rank) * 100 + i); };
    for (int i = 0; i < length; ++i) {
      context.write(place_in_row(context.own(), i), pattern(bytes_in_row(i), seed(context.rank(), i)));
      context.write(place_in_row(context.right(), i), Bytes(bytes_in_row(i), std::byte{9}));
    }
    context.meet();
    for (int i = 0; i < length; ++i)
      fabric.begin_put(stream, context.next(i), place_in_row(context.left(), i), place_in_row(context.own(), i),
                       bytes_in_row(i));
    if (round == 1) fabric.fence(stream);
    for (int i = 0; i < length; ++i) {
      fabric.put(stream, context.next(i), place_in_row(context.left(), i), place_in_row(context.own(), i),
                 bytes_in_row(i));
      fabric.get(stream, context.rank(), place_in_row(context.own(), i), place_in_row(context.right(), i),
                 bytes_in_row(i));
      fabric.signal_add(stream, context.next(i), context.flag(i), 1);
    }
    for (int i = 0; i < length; ++i)
      fabric.wait(stream, context.previous(i), context.flag(i), static_cast<std::uint64_t>(round) + 1, "begun put");
    for (int i = 0; i < length; ++i)
      expect_bytes(context.read(place_in_row(context.left(), i), bytes_in_row(i)),
                   pattern(bytes_in_row(i), seed(context.previous(i), i)),
                   fmt::format("what put {} of rank {} has brought", i, context.previous(i)));
    context.meet();
  }
}

// A stream that has failed between the beginning of a put and its end must not read its source later; and a put that was
// not begun has its turn before those that were.
void begun_puts_end_with_synchronize(Context& context) {
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const std::size_t bytes = std::min<std::size_t>(100000, context.options().largest_bytes / 2);
  std::byte *const begun = context.own(), *const given = context.own() + bytes;
  for (int round = 0; round < 10; ++round) {
    const auto seed = [&](int rank) { return static_cast<std::uint64_t>(round * 100 + rank); };
    context.write(context.right(), Bytes(bytes));
    context.write(begun, Bytes(bytes, std::byte{7}));
    context.write(given, pattern(bytes, seed(context.rank())));
    context.meet();
    for (int i = 0; i < 2; ++i) fabric.begin_put(stream, context.next(), context.right(), begun, bytes);
    fabric.put(stream, context.next(), context.left(), given, bytes);
    fabric.synchronize(stream);
    context.write(begun, Bytes(bytes, std::byte{8}));
    fabric.barrier(stream);
    expect_bytes(context.read(context.left(), bytes), pattern(bytes, seed(context.previous())),
                 "a put that was not begun");
    const Bytes right = context.read(context.right(), bytes);
    expect(std::ranges::count(right, std::byte{8}) == 0, "a begun put read its source after synchronize()");
    context.meet();
  }
}

// Gets of several peers, all begun before the first is got. What each has brought is copied behind it, in stream order,
// while later ones may be on their way.
void gets_begun_ahead(Context& context) {
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const int length = length_of_row(context);
  for (int round = 0; round < 3; ++round) {
    const auto seed = [&](int rank, int i) { return static_cast<std::uint64_t>((round * 100 + rank) * 100 + i); };
    for (int i = 0; i < length; ++i) {
      context.write(place_in_row(context.left(), i), pattern(bytes_in_row(i), seed(context.rank(), i)));
      context.write(place_in_row(context.own(), i), Bytes(bytes_in_row(i)));
    }
    context.meet();
    for (int i = 0; i < length; ++i)
      fabric.begin_get(stream, context.next(i), place_in_row(context.own(), i), place_in_row(context.left(), i),
                       bytes_in_row(i));
    fabric.fence(stream);
    for (int i = 0; i < length; ++i) {
      fabric.get(stream, context.next(i), place_in_row(context.own(), i), place_in_row(context.left(), i),
                 bytes_in_row(i));
      fabric.put(stream, context.rank(), place_in_row(context.right(), i), place_in_row(context.own(), i),
                 bytes_in_row(i));
    }
    for (int i = 0; i < length; ++i)
      expect_bytes(context.read(place_in_row(context.right(), i), bytes_in_row(i)),
                   pattern(bytes_in_row(i), seed(context.next(i), i)),
                   fmt::format("what get {} had brought of rank {}", i, context.next(i)));
    context.meet();
  }
}

// A stream that has failed between the beginning of a get and its end must not be written to later; and a get that was
// not begun has its turn before those that were.
void begun_gets_end_with_synchronize(Context& context) {
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  const std::size_t bytes = std::min<std::size_t>(100000, context.options().largest_bytes / 2);
  std::byte *const begun = context.own(), *const got = context.own() + bytes;
  context.write(context.left(), pattern(bytes, static_cast<std::uint64_t>(context.rank())));
  context.meet();
  const Bytes wanted = pattern(bytes, static_cast<std::uint64_t>(context.next()));
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 2; ++i) fabric.begin_get(stream, context.next(), begun, context.left(), bytes);
    fabric.get(stream, context.next(), got, context.left(), bytes);
    fabric.synchronize(stream);
    const Bytes mark(bytes, std::byte{7});
    context.write(begun, mark);
    expect_bytes(context.read(got, bytes), wanted, "a get that was not begun");
    context.meet();
    expect_bytes(context.read(begun, bytes), mark, "what nobody got, after synchronize()");
  }
}

void allocations_are_zero_and_aligned(Context& context) {
  for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{4096}}) {
    const SymmetricSpan span = context.fabric().allocate(size_bytes);
    expect(span.size_bytes == size_bytes, "{} bytes asked for, {} allocated", size_bytes, span.size_bytes);
    expect(reinterpret_cast<std::uintptr_t>(span.data) % 256 == 0, "not aligned to 256 bytes");
    expect_bytes(context.read(span.data, size_bytes), Bytes(size_bytes), "fresh memory of the heap");
  }
  context.meet();
}

void unequal_allocations_are_refused(Context& context) {
  const int last = context.size() - 1;
  bool refused = false;
  try {
    context.fabric().allocate(context.rank() == last ? 96 : 64);
  } catch (const InvalidArgument& error) {
    refused = true;
    const std::string text = error.what();
    expect(text.find(fmt::format("rank {}", last)) != std::string::npos && text.find("96") != std::string::npos &&
               text.find("64") != std::string::npos,
           "the error names no rank and values: {}", text);
  }
  expect(refused, "unequal sizes were not refused on rank {}", context.rank());
  context.fabric().allocate(64);  // and the fabric is as good as before
  context.meet();
}

void capabilities_are_true(Context& context) {
  Fabric& fabric = context.fabric();
  expect(!fabric.name().empty(), "the fabric has no name");
  expect(fabric.rank() >= 0 && fabric.rank() < fabric.size(), "rank {} of {}", fabric.rank(), fabric.size());
  expect(fabric.device() == context.stream().device(), "the fabric is not of its stream's device");
  const Ranks reached = fabric.addressable();
  if (!reached.empty()) {
    const Peers peers = fabric.peers(reached);
    expect(peers.size == static_cast<int>(reached.size()), "{} peers of {} ranks", peers.size, reached.size());
    for (int i = 0; i < peers.size; ++i) {
      const int rank = reached[static_cast<std::size_t>(i)];
      expect(peers.world_rank(i) == rank, "rank {} has the name {}", rank, peers.world_rank(i));
      expect((i == peers.rank) == (rank == fabric.rank()), "rank {} of the team is rank {}", peers.rank, fabric.rank());
    }
    expect(peers.at(peers.rank, context.left()) == context.left(), "the own heap is not where it is");
  }
  if (fabric.has(Capability::peer_addresses)) {
    expect(static_cast<int>(reached.size()) == fabric.size(), "{} ranks of {} have addresses", reached.size(),
           fabric.size());
    const Peers peers = fabric.peers();
    expect(peers.rank == fabric.rank() && peers.size == fabric.size(), "peers of another world");
    expect(peers.waits.record != nullptr, "waits have nowhere to report");
    require_capability(fabric, Capability::peer_addresses, "this case");
  } else {
    bool refused = false;
    try {
      static_cast<void>(fabric.peers());
    } catch (const InvalidArgument&) {
      refused = true;
    }
    expect(refused, "not all ranks have addresses, and peers() gives some of all");
  }
  context.meet();
}

void bad_arguments_are_refused(Context& context) {
  Fabric& fabric = context.fabric();
  Stream& stream = context.stream();
  std::byte* own = context.own();
  std::byte* left = context.left();
  std::uint64_t* flag = context.flag(0);
  auto* own_flag = reinterpret_cast<std::uint64_t*>(own);
  auto* odd_flag = reinterpret_cast<std::uint64_t*>(left + 4);
  const std::size_t beyond = std::size_t{1} << 40;  // more than any heap
  const int me = context.rank();
  const auto refuses = [&](std::string_view what, auto&& call) {
    bool refused = false;
    try {
      call();
    } catch (const InvalidArgument&) {
      refused = true;
    }
    expect(refused, "not refused: {}", what);
  };
  refuses("put to rank -1", [&] { fabric.put(stream, -1, left, own, 8); });
  refuses("put to a rank beyond the world", [&] { fabric.put(stream, context.size(), left, own, 8); });
  refuses("put outside the heap", [&] { fabric.put(stream, me, own, left, 8); });
  refuses("put over the heap's end", [&] { fabric.put(stream, me, left, own, beyond); });
  refuses("put of more than there are addresses", [&] { fabric.put(stream, me, left, own, std::size_t(-1)); });
  refuses("put to null", [&] { fabric.put(stream, me, nullptr, own, 8); });
  refuses("put from null", [&] { fabric.put(stream, me, left, nullptr, 8); });
  refuses("get from rank -1", [&] { fabric.get(stream, -1, own, left, 8); });
  refuses("get from a rank beyond the world", [&] { fabric.get(stream, context.size(), own, left, 8); });
  refuses("get from outside the heap", [&] { fabric.get(stream, me, left, own, 8); });
  refuses("get over the heap's end", [&] { fabric.get(stream, me, own, left, beyond); });
  refuses("get to null", [&] { fabric.get(stream, me, nullptr, left, 8); });
  refuses("begin_put beyond the world", [&] { fabric.begin_put(stream, context.size(), left, own, 8); });
  refuses("begin_put outside the heap", [&] { fabric.begin_put(stream, me, own, left, 8); });
  refuses("begin_put from null", [&] { fabric.begin_put(stream, me, left, nullptr, 8); });
  refuses("begin_get beyond the world", [&] { fabric.begin_get(stream, context.size(), own, left, 8); });
  refuses("begin_get from outside the heap", [&] { fabric.begin_get(stream, me, left, own, 8); });
  refuses("begin_get to null", [&] { fabric.begin_get(stream, me, nullptr, left, 8); });
  refuses("signal to rank -1", [&] { fabric.signal(stream, -1, flag, 1); });
  refuses("signal outside the heap", [&] { fabric.signal(stream, me, own_flag, 1); });
  refuses("signal of a misaligned flag", [&] { fabric.signal(stream, me, odd_flag, 1); });
  refuses("signal_add beyond the world", [&] { fabric.signal_add(stream, context.size(), flag, 1); });
  refuses("signal_add of a misaligned flag", [&] { fabric.signal_add(stream, me, odd_flag, 1); });
  refuses("wait for rank -1", [&] { fabric.wait(stream, -1, flag, 0, "bad"); });
  refuses("wait outside the heap", [&] { fabric.wait(stream, me, own_flag, 0, "bad"); });
  refuses("wait for a misaligned flag", [&] { fabric.wait(stream, me, odd_flag, 0, "bad"); });
  refuses("a barrier of nobody", [&] { fabric.barrier(stream, Ranks{}); });
  refuses("a barrier with a rank twice", [&] { fabric.barrier(stream, Ranks{me, me}); });
  refuses("a barrier beyond the world", [&] { fabric.barrier(stream, Ranks{me, context.size()}); });
  if (context.size() > 1) {
    refuses("a barrier of others", [&] { fabric.barrier(stream, Ranks{context.next()}); });
    if (fabric.has(Capability::peer_addresses))
      refuses("peers of others", [&] { static_cast<void>(fabric.peers(Ranks{context.next()})); });
  }
  // What is odd and right.
  fabric.put(stream, me, left, nullptr, 0);
  fabric.put(stream, me, left, left + 64, 8);
  fabric.barrier(stream, Ranks{me});
  context.meet();
}

}  // namespace heddle::conformance

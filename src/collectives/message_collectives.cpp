#include "collectives/message_collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "collectives/direct.cuh"
#include "collectives/dispatch.cuh"

namespace heddle {
namespace {

// Up to this size every rank sends its whole input to all others.
constexpr std::size_t kWholeToAll = std::size_t{16} << 10;
// The largest message of data received in place, because the deadline holds for one message.
constexpr std::size_t kMessage = std::size_t{4} << 20;

// One call's exchanges, from inside its task.
class MessageCall {
 public:
  MessageCall(const Communicator& communicator, Tag tag)
      : communicator_(communicator),
        messages_(*messages_of(communicator)),
        // Every rank's communicator of the team, and no other of its, has its flags there.
        channel_(communicator.fabric().offset_of(communicator.put_flag(0), 8).value()),
        tag_(tag) {}

  int n() const { return communicator_.size(); }
  int rank() const { return communicator_.rank(); }

  // Space for what the others send; only this rank accesses it.
  std::size_t slot_bytes() const {
    const auto others = static_cast<std::size_t>(n() - 1);
    const std::size_t room = 2 * static_cast<std::size_t>(n()) * communicator_.put_slot_bytes();
    return std::min(room / others, MessageExchange::kMostBytes) / kPacketBytes * kPacketBytes;
  }
  std::byte* slot(int p) const {
    return communicator_.put_slot(0, 0) + static_cast<std::size_t>(p < rank() ? p : p - 1) * slot_bytes();
  }

  void send(int p, const std::byte* data, std::size_t bytes) {
    if (bytes != 0) outgoing_.push_back({world_rank(p), data, bytes});
  }
  void receive(int p, std::byte* data, std::size_t bytes) {
    if (bytes != 0) incoming_.push_back({world_rank(p), data, bytes});
  }
  // Everything since the last time.
  void exchange() {
    messages_.exchange_messages(channel_, outgoing_, incoming_, tag_);
    outgoing_.clear();
    incoming_.clear();
  }

  // body(p) for every other rank, the next one first, so that not all send to the same.
  template <class Body>
  void for_others(const Body& body) const {
    for (int step = 1; step < n(); ++step) body(AllToAll{n()}.at(rank(), step).to);
  }

  // destination = the sum in rank order of the slots, with `own` as this rank's.
  void sum(DType dtype, const std::byte* own, std::byte* destination, std::size_t bytes) const {
    const auto source = [&](int p) -> const std::byte* { return p == rank() ? own : slot(p); };
    with_element(dtype, [&]<class T>() {
      sum_to<T, 1>(
          HostThread{}, n(), source, 1, [&](int) { return destination; }, bytes);
    });
  }

 private:
  int world_rank(int p) const { return communicator_.team()[static_cast<std::size_t>(p)]; }

  const Communicator& communicator_;
  MessageExchange& messages_;
  std::uint64_t channel_;
  Tag tag_;
  std::vector<OutgoingMessage> outgoing_;
  std::vector<IncomingMessage> incoming_;
};

void copy_own(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (destination != source && bytes != 0) std::memcpy(destination, source, bytes);
}

// body(begin, size) for each round of at most `round` of the bytes.
template <class Body>
void for_rounds(std::size_t bytes, std::size_t round, const Body& body) {
  for (std::size_t begin = 0; begin < bytes; begin += round) body(begin, std::min(round, bytes - begin));
}

// Of a call whose rounds are cut into pieces.
struct Rounds {
  std::size_t bytes, each;
  int ranks;

  std::size_t count() const { return ceil_div(bytes, each); }
  std::size_t begin(std::size_t k) const { return k * each; }
  EvenPieces pieces(std::size_t k) const { return {std::min(each, bytes - begin(k)), ranks}; }
};

void run_all_reduce(MessageCall call, const AllReduceParams& params) {
  const auto* const from = static_cast<const std::byte*>(params.input);
  auto* const to = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  if (bytes <= std::min(kWholeToAll, call.slot_bytes())) {
    call.for_others([&](int p) {
      call.send(p, from, bytes);
      call.receive(p, call.slot(p), bytes);
    });
    call.exchange();
    return call.sum(params.dtype, from, to, bytes);
  }
  const Rounds rounds{bytes, call.slot_bytes() * static_cast<std::size_t>(call.n()), call.n()};
  for (std::size_t k = 0;; ++k) {
    if (k < rounds.count()) {
      const EvenPieces pieces = rounds.pieces(k);
      call.for_others([&](int p) {
        call.send(p, from + rounds.begin(k) + pieces.begin(p), pieces.size(p));
        call.receive(p, call.slot(p), pieces.size(call.rank()));
      });
    }
    if (k != 0) {
      const EvenPieces pieces = rounds.pieces(k - 1);
      std::byte* const sums = to + rounds.begin(k - 1);
      call.for_others([&](int p) {
        call.send(p, sums + pieces.begin(call.rank()), pieces.size(call.rank()));
        call.receive(p, sums + pieces.begin(p), pieces.size(p));
      });
    }
    call.exchange();
    if (k == rounds.count()) return;
    const EvenPieces pieces = rounds.pieces(k);
    const std::size_t mine = rounds.begin(k) + pieces.begin(call.rank());
    call.sum(params.dtype, from + mine, to + mine, pieces.size(call.rank()));
  }
}

// As the all-reduce: a round's pieces to those who pass them on, and what they have to pass on of the round before.
void run_broadcast(MessageCall call, const BroadcastParams& params) {
  auto* const to = static_cast<std::byte*>(params.output);
  const std::size_t bytes = params.count * size_of(params.dtype);
  const int rank = call.rank(), root = params.root;
  const std::byte* const from = rank == root ? static_cast<const std::byte*>(params.input) : to;
  if (bytes <= kWholeToAll || call.n() == 2) {
    for_rounds(bytes, kMessage, [&](std::size_t begin, std::size_t size) {
      if (rank == root)
        call.for_others([&](int p) { call.send(p, from + begin, size); });
      else
        call.receive(root, to + begin, size);
      call.exchange();
    });
  } else {
    const Rounds rounds{bytes, kMessage, call.n()};
    for (std::size_t k = 0; k <= rounds.count(); ++k) {
      if (k < rounds.count()) {
        const EvenPieces pieces = rounds.pieces(k);
        const std::size_t begin = rounds.begin(k);
        if (rank == root)
          call.for_others([&](int p) { call.send(p, from + begin + pieces.begin(p), pieces.size(p)); });
        else
          call.receive(root, to + begin + pieces.begin(rank), pieces.size(rank));
      }
      if (k != 0) {
        const EvenPieces pieces = rounds.pieces(k - 1);
        const std::size_t begin = rounds.begin(k - 1);
        call.for_others([&](int p) {
          if (p != root) call.send(p, from + begin + pieces.begin(rank), pieces.size(rank));
          if (rank != root) call.receive(p, to + begin + pieces.begin(p), pieces.size(p));
        });
      }
      call.exchange();
    }
  }
  if (rank == root) copy_own(to, from, bytes);
}

}  // namespace

MessageExchange* messages_of(const Communicator& communicator) {
  if (communicator.fabric().has(Capability::peer_addresses)) return nullptr;
  return dynamic_cast<MessageExchange*>(&communicator.fabric());
}

void all_reduce_by_messages(Communicator& communicator, const AllReduceParams& params, Stream& stream) {
  stream.enqueue(
      [&communicator, params](ThreadPool&) { run_all_reduce(MessageCall(communicator, "all-reduce"), params); });
}

void broadcast_by_messages(Communicator& communicator, const BroadcastParams& params, Stream& stream) {
  stream.enqueue(
      [&communicator, params](ThreadPool&) { run_broadcast(MessageCall(communicator, "broadcast"), params); });
}

void reduce_scatter_by_messages(Communicator& communicator, const ReduceScatterParams& params, Stream& stream) {
  stream.enqueue([&communicator, params](ThreadPool&) {
    MessageCall call(communicator, "reduce-scatter");
    const auto* const input = static_cast<const std::byte*>(params.input);
    const std::size_t bytes = params.count * size_of(params.dtype);
    for_rounds(bytes, call.slot_bytes(), [&](std::size_t begin, std::size_t size) {
      const auto piece = [&](int p) { return input + static_cast<std::size_t>(p) * bytes + begin; };
      call.for_others([&](int p) {
        call.send(p, piece(p), size);
        call.receive(p, call.slot(p), size);
      });
      call.exchange();
      call.sum(params.dtype, piece(call.rank()), static_cast<std::byte*>(params.output) + begin, size);
    });
  });
}

void all_gather_by_messages(Communicator& communicator, const AllGatherParams& params, Stream& stream) {
  stream.enqueue([&communicator, params](ThreadPool&) {
    MessageCall call(communicator, "all-gather");
    const auto* const input = static_cast<const std::byte*>(params.input);
    const std::size_t bytes = params.count * size_of(params.dtype);
    const auto place = [&](int p) {
      return static_cast<std::byte*>(params.output) + static_cast<std::size_t>(p) * bytes;
    };
    for_rounds(bytes, kMessage, [&](std::size_t begin, std::size_t size) {
      call.for_others([&](int p) {
        call.send(p, input + begin, size);
        call.receive(p, place(p) + begin, size);
      });
      call.exchange();
    });
    copy_own(place(call.rank()), input, bytes);
  });
}

void all_to_all_by_messages(Communicator& communicator, const AllToAllParams& params, Stream& stream) {
  stream.enqueue([&communicator, params](ThreadPool&) {
    MessageCall call(communicator, "all-to-all");
    const auto* const input = static_cast<const std::byte*>(params.input);
    auto* const output = static_cast<std::byte*>(params.output);
    const std::size_t bytes = params.count * size_of(params.dtype);
    const auto piece = [&](int p) { return static_cast<std::size_t>(p) * bytes; };
    // In place, what comes must not overwrite what goes.
    const bool in_place = input == output;
    for_rounds(bytes, in_place ? call.slot_bytes() : kMessage, [&](std::size_t begin, std::size_t size) {
      call.for_others([&](int p) {
        call.send(p, input + piece(p) + begin, size);
        call.receive(p, in_place ? call.slot(p) : output + piece(p) + begin, size);
      });
      call.exchange();
      if (in_place) call.for_others([&](int p) { std::memcpy(output + piece(p) + begin, call.slot(p), size); });
    });
    copy_own(output + piece(call.rank()), input + piece(call.rank()), bytes);
  });
}

}  // namespace heddle

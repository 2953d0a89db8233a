// Where ranks whose memory is on devices leave messages for each other: the layout of the host fabric's heap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "device/semaphore.h"

namespace heddle {

// What one rank asks of another. Bytes of a put follow it.
struct StagedRequest {
  enum Kind : std::uint32_t {
    put,
    word,  // a put of 8 aligned bytes, which are in `value`
    set,
    add,
    get,  // into the answer of number `value`
    tell  // that all earlier requests of this lane are done
  };

  std::uint32_t kind = tell;
  std::uint32_t reserved = 0;
  std::uint64_t offset = 0;  // in the device's heap
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
};

// One for each pair of ranks and lane, at each of the two. A rank writes in it what it has for the other; the other's own
// messages lie in its counterpart. Semaphores are waited for where they lie.
struct StagedWay {
  Semaphore arrived;   // requests from the writer's lane
  Semaphore room;      // requests of the reader's lane that the writer is done with
  Semaphore answered;  // answers of the writer to the reader's lane
};

class StagingArea {
 public:
  static constexpr int kLanes = 4;  // streams of a rank that transfer at once
  static constexpr int kSlots = 2;  // requests of a lane to one peer that are under way, and answers
  static constexpr std::size_t kRequestBytes = 64;

  StagingArea(std::byte* begin, int ranks, std::size_t piece_bytes)
      : begin_(begin), ranks_(ranks), piece_bytes_(round_up(piece_bytes, kRequestBytes)) {}
  std::size_t bytes() const { return word_bytes() + ways() * way_bytes(); }

  std::size_t piece_bytes() const { return piece_bytes_; }
  std::size_t slot_bytes() const { return kRequestBytes + piece_bytes_; }
  StagedWay& way(int writer, int lane) const { return *reinterpret_cast<StagedWay*>(of(writer, lane)); }
  std::byte* slot(int writer, int lane, std::uint64_t request) const {  // a StagedRequest and a piece
    return of(writer, lane) + kWayBytes + request % kSlots * slot_bytes();
  }
  std::byte* answer(int writer, int lane, std::uint64_t number) const {
    return of(writer, lane) + kWayBytes + kSlots * slot_bytes() + number % kSlots * piece_bytes_;
  }
  // What all ranks tell all: a word of each, in two sets that take turns, and that it is there.
  std::uint64_t* word(int writer, std::uint64_t round) const {
    return reinterpret_cast<std::uint64_t*>(begin_) + 4 * writer + round % 2;
  }
  Semaphore* told(int writer) const {
    return reinterpret_cast<Semaphore*>(reinterpret_cast<std::uint64_t*>(begin_) + 4 * writer + 2);
  }

 private:
  static constexpr std::size_t kWayBytes = 64;
  static_assert(sizeof(StagedWay) <= kWayBytes && sizeof(StagedRequest) <= kRequestBytes);

  std::size_t ways() const { return static_cast<std::size_t>(ranks_) * kLanes; }
  std::size_t word_bytes() const {
    return round_up(static_cast<std::size_t>(ranks_) * 4 * sizeof(std::uint64_t), kRequestBytes);
  }
  std::size_t way_bytes() const { return kWayBytes + kSlots * (slot_bytes() + piece_bytes_); }
  std::byte* of(int writer, int lane) const {
    return begin_ + word_bytes() +
           (static_cast<std::size_t>(writer) * kLanes + static_cast<std::size_t>(lane)) * way_bytes();
  }

  std::byte* begin_;
  int ranks_;
  std::size_t piece_bytes_;
};

}  // namespace heddle

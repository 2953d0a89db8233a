// MpiWorld's puts. A thread's puts end in the order in which they began. The bytes of all that have begun leave at once, so a
// peer that takes them slowly holds up no other, and no link is idle while a row of puts is under way.
#include <algorithm>
#include <deque>
#include <utility>

#include "fabric/mapped_memory.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/mpi/mpi_world.h"

namespace heddle {

bool MpiWorld::Put::operator==(const Put& other) const {
  return peer == other.peer && source == other.source && offset == other.offset && bytes == other.bytes;
}

std::size_t MpiWorld::Put::bytes_left() const {
  std::size_t left = 0;
  for (const Piece& piece : pieces) left += piece.sent.bytes_left();
  return left;
}

void MpiWorld::begin_put(int peer, std::size_t offset, const void* source, std::size_t bytes) {
  throw_if_in_trouble();
  if (bytes <= kMostBytesWithin || mapped_heap(peer) != nullptr) return;  // put() ends at once
  std::deque<Put>& puts = puts_of_thread();
  puts.push_back({.peer = peer, .source = static_cast<const std::byte*>(source), .offset = offset, .bytes = bytes});
  send_pieces(puts.back());
}

void MpiWorld::put(int peer, std::size_t offset, const void* source, std::size_t bytes) {
  throw_if_in_trouble();
  if (std::byte* const there = mapped_heap(peer)) return copy_mapped(there + offset, source, bytes);
  if (bytes == 0) return;
  const auto* const data = static_cast<const std::byte*>(source);
  if (bytes <= kMostBytesWithin)
    return send(peer, {.kind = HeapRequest::put, .offset = offset, .bytes = bytes}, {data, bytes}, "put");
  std::deque<Put>& puts = puts_of_thread();
  Put put{.peer = peer, .source = data, .offset = offset, .bytes = bytes};
  if (puts.empty() || !(puts.front() == put)) {
    puts.push_front(std::move(put));
    send_pieces(puts.front());
  }
  end_oldest_put(puts);
}

void MpiWorld::end_begun_puts() {
  const auto has_begun = [&] {
    const std::lock_guard lock(mutex_);
    return puts_.contains(std::this_thread::get_id());
  };
  while (has_begun()) end_oldest_put(puts_of_thread());
}

// A deque stays where it is while other threads add theirs.
std::deque<MpiWorld::Put>& MpiWorld::puts_of_thread() {
  const std::lock_guard lock(mutex_);
  return puts_[std::this_thread::get_id()];
}

void MpiWorld::send_pieces(Put& put) {
  for (std::size_t begun = 0; begun < put.bytes; begun += kPieceBytes) {
    Put::Piece& piece = put.pieces.emplace_back();
    piece.request = {.kind = HeapRequest::put_behind,
                     .offset = put.offset + begun,
                     .bytes = std::min(kPieceBytes, put.bytes - begun)};
    const std::unique_lock lock = lock_mpi();
    ask(put.peer, piece.request, &piece.request, piece.asked);
    const RankWatch::Call call(watch_, "MPI_Isend", put.peer);
    piece.sent.send(memory_, put.peer, HeapServer::kPayloadTag, put.source + begun, piece.request.bytes, check_);
  }
}

void MpiWorld::end_oldest_put(std::deque<Put>& puts) {
  Put& put = puts.front();
  const auto look = [&] {
    Put::Piece& piece = put.pieces.front();
    int asked = 0;
    if (piece.sent.test(check_)) check("MPI_Test", MPI_Test(&piece.asked, &asked, MPI_STATUS_IGNORE), put.peer);
    if (asked != 0) put.pieces.pop_front();
    return std::uint64_t{put.pieces.empty() ? put.bytes : put.bytes - std::max<std::size_t>(1, put.bytes_left())};
  };
  await(put.peer, "put", put.bytes, look, DeadlineOf::step);
  puts.pop_front();
  if (!puts.empty()) return;
  const std::lock_guard lock(mutex_);
  puts_.erase(std::this_thread::get_id());
}

}  // namespace heddle

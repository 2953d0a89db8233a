// MpiWorld's gets. A thread's gets end in the order in which they began. All are asked for when the first one's bytes
// begin to come, and each says how many it comes behind; the peers answer in that order (heap_server.h). So every peer
// knows what it is to send next, and the bytes come about in the order of the gets. Were each asked for when the one before
// has come, a rank whose next peer is busy would wait, while others that could answer it do nothing.
#include <algorithm>
#include <cstring>
#include <deque>

#include "fabric/mapped_memory.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/mpi/mpi_world.h"

namespace heddle {
namespace {

// Asked for by one thread and not yet here.
constexpr std::size_t kMostBytesComing = 4 * kPieceBytes;

}  // namespace

std::size_t MpiWorld::Get::bytes_come() const {
  std::size_t come = bytes_asked;
  for (const Piece& piece : pieces) come -= piece.received.bytes_left();
  return come;
}

bool MpiWorld::Get::operator==(const Get& other) const {
  return peer == other.peer && destination == other.destination && offset == other.offset && bytes == other.bytes;
}

void MpiWorld::begin_get(int peer, void* destination, std::size_t offset, std::size_t bytes) {
  throw_if_in_trouble();
  if (bytes == 0 || mapped_heap(peer) != nullptr) return;
  const std::unique_lock lock = lock_mpi();
  std::deque<Get>& gets = gets_[std::this_thread::get_id()];
  gets.push_back({.peer = peer,
                  .destination = static_cast<std::byte*>(destination),
                  .offset = offset,
                  .bytes = bytes,
                  .turn = gets.empty() ? 0 : gets.back().turn + 1});
  ask_for(gets);
}

void MpiWorld::get(int peer, void* destination, std::size_t offset, std::size_t bytes) {
  throw_if_in_trouble();
  if (const std::byte* const there = mapped_heap(peer)) return copy_mapped(destination, there + offset, bytes);
  if (bytes == 0) return;
  {
    const std::unique_lock lock = lock_mpi();
    std::deque<Get>& gets = gets_[std::this_thread::get_id()];
    Get get{.peer = peer, .destination = static_cast<std::byte*>(destination), .offset = offset, .bytes = bytes};
    if (gets.empty() || !(gets.front() == get)) gets.push_front(std::move(get));
  }
  end_oldest_get();
}

void MpiWorld::end_begun_gets() {
  const auto has_begun = [&] {
    const std::lock_guard lock(mutex_);
    return gets_.contains(std::this_thread::get_id());
  };
  while (has_begun()) end_oldest_get();
}

void MpiWorld::end_oldest_get() {
  std::deque<Get>* gets = nullptr;
  {
    const std::lock_guard lock(mutex_);
    gets = &gets_.at(std::this_thread::get_id());
  }
  Get& get = gets->front();
  const auto look = [&] {
    ask_for(*gets);
    Get::Piece& piece = get.pieces.front();
    int sent = 0;
    if (piece.received.test(check_)) check("MPI_Test", MPI_Test(&piece.asked, &sent, MPI_STATUS_IGNORE), get.peer);
    if (sent != 0) get.pieces.pop_front();
    if (get.pieces.empty() && get.bytes_asked < get.bytes) ask_for(*gets);
    return std::uint64_t{get.done() ? get.bytes : std::min(get.bytes_come(), get.bytes - 1)};
  };
  await(get.peer, "get", get.bytes, look, DeadlineOf::step);
  const std::lock_guard lock(mutex_);
  gets->pop_front();
  if (gets->empty()) gets_.erase(std::this_thread::get_id());
}

void MpiWorld::ask_for(std::deque<Get>& gets) {
  std::size_t bytes_coming = 0;
  for (Get& get : gets) {
    bytes_coming += get.bytes_asked - get.bytes_come();
    for (; get.bytes_asked < get.bytes; bytes_coming += get.pieces.back().request.bytes) {
      if (bytes_coming > kMostBytesComing) return;
      ask_for_piece(get);
    }
    // Those of all ranks have asked for their first by then.
    if (get.bytes_come() == 0 && get.turn == 0) return;
  }
}

void MpiWorld::ask_for_piece(Get& get) {
  const std::size_t begun = get.bytes_asked;
  Get::Piece& piece = get.pieces.emplace_back();
  piece.request = {.kind = HeapRequest::get,
                   .reply_tag = next_reply_tag(),
                   .offset = get.offset + begun,
                   .bytes = std::min(kPieceBytes, get.bytes - begun),
                   .value = get.turn};
  piece.received.receive(memory_, get.peer, piece.request.reply_tag, get.destination + begun, piece.request.bytes,
                         check_);
  get.bytes_asked += piece.request.bytes;
  ask(get.peer, piece.request, &piece.request, piece.asked);
}

}  // namespace heddle

// MpiWorld's messages to other ranks' heaps, and what they are sent for but puts (mpi_puts.cpp) and gets (mpi_gets.cpp).
#include <algorithm>
#include <cstring>
#include <vector>

#include "device/atomics.h"
#include "device/spin.h"
#include "fabric/mapped_memory.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/mpi/mpi_world.h"

namespace heddle {
namespace {

constexpr std::uint32_t kLooksBeforeSaying = 64;  // that this rank waits

std::size_t size_of(const HeapRequest& request) {
  return sizeof request + (request.kind == HeapRequest::put ? request.bytes : 0);
}

}  // namespace

int MpiWorld::next_reply_tag() {
  const auto tags = static_cast<std::uint64_t>(largest_tag_ - HeapServer::kFirstReplyTag);
  return HeapServer::kFirstReplyTag + static_cast<int>(num_replies_++ % tags);
}

void MpiWorld::ask(int peer, const HeapRequest& request, const void* message, MPI_Request& sent) {
  if (request.kind != HeapRequest::get && request.kind != HeapRequest::tell) {
    // First, as it may throw, and nothing may while a message of the caller is under way.
    std::vector<int>& peers = unconfirmed_[std::this_thread::get_id()];
    if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  }
  const RankWatch::Call call(watch_, "MPI_Isend", peer);
  check("MPI_Isend",
        MPI_Isend(message, static_cast<int>(size_of(request)), MPI_BYTE, peer, HeapServer::kRequestTag, memory_, &sent),
        peer);
}

void MpiWorld::send(int peer, const HeapRequest& request, std::span<const std::byte> within, Tag tag) {
  HeapMessage message;
  std::memcpy(message.data(), &request, sizeof request);
  std::copy(within.begin(), within.end(), message.begin() + sizeof request);
  MPI_Request sent = MPI_REQUEST_NULL;
  {
    const std::unique_lock lock = lock_mpi();
    ask(peer, request, message.data(), sent);
  }
  await(sent, peer, tag);
}

void MpiWorld::confirm(std::span<const int> peers, Tag tag) {
  struct Question {
    HeapRequest request;
    MPI_Request asked = MPI_REQUEST_NULL, answered = MPI_REQUEST_NULL;
  };
  std::vector<Question> questions(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const int peer = peers[i];
    const std::unique_lock lock = lock_mpi();
    Question& question = questions[i];
    question.request = {.kind = HeapRequest::tell, .reply_tag = next_reply_tag()};
    check("MPI_Irecv", MPI_Irecv(nullptr, 0, MPI_BYTE, peer, question.request.reply_tag, memory_, &question.answered),
          peer);
    ask(peer, question.request, &question.request, question.asked);
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    await(questions[i].asked, peers[i], tag);
    await(questions[i].answered, peers[i], tag);
  }
}

void MpiWorld::confirm_all_but(int peer, Tag tag) {
  std::vector<int> others;
  {
    const std::lock_guard lock(mutex_);
    const auto own = unconfirmed_.find(std::this_thread::get_id());
    if (own == unconfirmed_.end()) return;
    std::copy_if(own->second.begin(), own->second.end(), std::back_inserter(others),
                 [&](int other) { return other != peer; });
  }
  if (others.empty()) return;
  confirm(others, tag);
  const std::lock_guard lock(mutex_);
  std::vector<int>& own = unconfirmed_[std::this_thread::get_id()];
  std::erase_if(own, [&](int other) { return other != peer; });
  if (own.empty()) unconfirmed_.erase(std::this_thread::get_id());
}

void MpiWorld::signal(int peer, std::size_t offset, std::uint64_t value, SignalKind kind) {
  throw_if_in_trouble();
  if (!shared_) confirm_all_but(peer, "signal");  // the peer itself carries out one after the other
  if (std::byte* const there = mapped_heap(peer)) {
    auto* const flag = reinterpret_cast<std::uint64_t*>(there + offset);
    if (kind == SignalKind::set)
      atomic_store(flag, value);
    else
      atomic_add(flag, value);
    return;
  }
  if (near_) fence_mapped();  // what it stored on this machine comes before the message
  const HeapRequest request{
      .kind = kind == SignalKind::set ? HeapRequest::set : HeapRequest::add, .offset = offset, .value = value};
  send(peer, request, {}, "signal");
}

void MpiWorld::wait(int from, std::size_t offset, std::uint64_t target, Tag tag) {
  const auto* flag = reinterpret_cast<const std::uint64_t*>(heap_ + offset);
  if (shared_) return wait_in_memory(from, flag, target, tag);
  await(from, tag, target, [&] { return atomic_load(flag); });
}

void MpiWorld::wait_in_memory(int from, const std::uint64_t* flag, std::uint64_t target, Tag tag) {
  throw_if_in_trouble();
  for (std::uint32_t looks = 0; looks < kLooksBeforeSaying; ++looks)
    if (atomic_load(flag) >= target) return;
  watch_.say_waiting(from, tag);
  // Where it gives up it is still waiting, as others may ask.
  if (!spin_until(wait_limit(), {rank(), from, tag}, flag, target)) {
    put_record_into_words();
    watch_.throw_trouble();
  }
  watch_.say_not_waiting();
}

void MpiWorld::fence() {
  throw_if_in_trouble();
  fence_mapped();
  if (!shared_) confirm_all_but(-1, "fence");
}

void MpiWorld::confirm_all_threads() {
  if (shared_) return;
  std::vector<int> peers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, theirs] : unconfirmed_)
      std::copy_if(theirs.begin(), theirs.end(), std::back_inserter(peers),
                   [&](int peer) { return std::find(peers.begin(), peers.end(), peer) == peers.end(); });
    unconfirmed_.clear();
  }
  confirm(peers, "close");
}

}  // namespace heddle

#include "fabric/mpi/heap_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/atomics.h"
#include "fabric/mapped_memory.h"

namespace heddle {
namespace {

// Of all ranks in a call of serve(), and of one rank after its put. A waiting thread serves with the world's lock held:
// its deadline, and the other threads, must have their turn however fast requests come.
constexpr int kMostAtOnce = 256;
// Of an answer without a message sent, before the next one begins: longer than a message takes on a link of 10 Mbit/s that
// two share.
constexpr std::chrono::milliseconds kStalled{250};

}  // namespace

HeapServer::HeapServer(MPI_Comm messages, std::span<std::byte> heap, std::chrono::nanoseconds longest_wait,
                       MpiCheck check, Reject reject)
    : messages_(messages),
      heap_(heap),
      longest_wait_(longest_wait),
      check_(std::move(check)),
      reject_(std::move(reject)) {
  int size = 0;
  check_("MPI_Comm_size", MPI_Comm_size(messages_, &size), -1);
  clients_.resize(static_cast<std::size_t>(size));
  listen();
}

void HeapServer::listen() {
  check_("MPI_Irecv",
         MPI_Irecv(next_.data(), static_cast<int>(next_.size()), MPI_BYTE, MPI_ANY_SOURCE, kRequestTag, messages_,
                   &incoming_),
         -1);
}

bool HeapServer::serve() {
  int come = 1;
  for (int i = 0; i < kMostAtOnce; ++i) {
    MPI_Status status;
    check_("MPI_Test", MPI_Test(&incoming_, &come, &status), -1);
    if (come == 0) break;
    const int from = status.MPI_SOURCE;
    int bytes = 0;
    check_("MPI_Get_count", MPI_Get_count(&status, MPI_BYTE, &bytes), from);
    const std::span message(next_.data(), static_cast<std::size_t>(bytes));
    if (const std::string fault = fault_of_request(message, heap_.size()); !fault.empty()) reject_(from, fault);
    Client& its = client(from);
    if (!its.payload && its.later.empty())
      carry_out(from, next_.data());
    else
      its.later.push_back(next_);
    listen();
  }
  const bool left = end_payloads();
  end_answers();
  return come != 0 || left;
}

void HeapServer::carry_out(int from, const std::byte* message) {
  HeapRequest request;
  std::memcpy(&request, message, sizeof request);
  std::byte* const place = heap_.data() + request.offset;
  auto* const flag = reinterpret_cast<std::uint64_t*>(place);
  switch (request.kind) {
    case HeapRequest::put:
      fence_mapped();  // the rank's earlier puts may be what a fence of its has this one come after
      return copy_mapped(place, message + sizeof request, request.bytes);
    case HeapRequest::put_behind: {
      PutInTransit& payload = client(from).payload.emplace();
      payload.bytes = request.bytes;
      payload.transfer.receive(messages_, from, kPayloadTag, place, request.bytes, check_);
      receiving_.push_back(from);
      return;
    }
    case HeapRequest::get:
      return answer(from, place, request);
    case HeapRequest::set:
      return atomic_store(flag, request.value);
    case HeapRequest::add:
      atomic_add(flag, request.value);
      return;
    case HeapRequest::tell:
      return answer(from, nullptr, request);
  }
}

void HeapServer::answer(int to, const std::byte* data, const HeapRequest& request) {
  const std::size_t bytes = request.kind == HeapRequest::get ? request.bytes : 0;
  Answer one{.to = to, .tag = request.reply_tag, .data = data, .bytes = bytes};
  if (bytes > kMostBytesWithin) {
    one.turn = num_large_ + request.value;
    one.came_at = std::chrono::steady_clock::now();
    waiting_.insert(std::ranges::upper_bound(waiting_, one.turn, {}, &Answer::turn), std::move(one));
    return send_waiting();
  }
  if (bytes != 0) {
    one.copy = std::make_unique<std::byte[]>(bytes);
    copy_mapped(one.copy.get(), data, bytes);
    one.data = one.copy.get();
  }
  send(std::move(one));
}

void HeapServer::send(Answer answer) {
  Answer& one = answers_.emplace_back(std::move(answer));
  one.transfer.send_in_turn(messages_, one.to, one.tag, one.data, one.bytes, check_);
}

void HeapServer::send_waiting() {
  if (waiting_.empty()) return;
  std::size_t left = 0;
  for (const Answer& answer : answers_) left += answer.transfer.bytes_left();
  const Time now = std::chrono::steady_clock::now();
  if (std::exchange(bytes_left_, left) != left) moved_at_ = now;
  if (left == 0 || now - moved_at_ >= kStalled) send_waiting(waiting_.begin());
  const auto overdue =
      std::ranges::find_if(waiting_, [&](const Answer& one) { return now - one.came_at > longest_wait_; });
  if (overdue != waiting_.end()) send_waiting(overdue);  // one at a call; the next call has the next
}

void HeapServer::send_waiting(std::deque<Answer>::iterator answer) {
  send(std::move(*answer));
  waiting_.erase(answer);
  ++num_large_;
  moved_at_ = std::chrono::steady_clock::now();
}

bool HeapServer::end_payloads() {
  bool left = false;
  // Each that is in the list now, by index: a request that has waited may begin the next put of its rank.
  std::size_t i = 0;
  for (std::size_t looks = receiving_.size(); looks != 0; --looks) {
    const int from = receiving_[i];
    Client& its = client(from);
    if (its.payload) {
      auto& [bytes, transfer] = *its.payload;
      if (!transfer.test(check_)) {
        ++i;
        continue;
      }
      if (transfer.bytes_come() != bytes)
        reject_(from, fmt::format("a put of {} bytes, of which {} have come", bytes, transfer.bytes_come()));
      its.payload.reset();
    }
    receiving_.erase(receiving_.begin() + static_cast<std::ptrdiff_t>(i));
    for (int n = 0; n < kMostAtOnce && !its.payload && !its.later.empty(); ++n) {
      carry_out(from, its.later.front().data());
      its.later.pop_front();
    }
    if (its.payload || its.later.empty()) continue;
    receiving_.push_back(from);
    left = true;
  }
  return left;
}

void HeapServer::end_answers() {
  std::erase_if(answers_, [&](Answer& answer) { return answer.transfer.test(check_); });
  send_waiting();
}

void HeapServer::close() {
  check_("MPI_Cancel", MPI_Cancel(&incoming_), -1);
  check_("MPI_Wait", MPI_Wait(&incoming_, MPI_STATUS_IGNORE), -1);
}

}  // namespace heddle

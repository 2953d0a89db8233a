#include "fabric/mpi/heap_server.h"

#include <cstring>
#include <utility>

#include "device/atomics.h"
#include "fabric/mapped_memory.h"

namespace heddle {

HeapServer::HeapServer(MPI_Comm messages, std::byte* heap, Check check)
    : messages_(messages), heap_(heap), check_(std::move(check)) {
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

void HeapServer::serve() {
  while (true) {
    int come = 0;
    MPI_Status status;
    check_("MPI_Test", MPI_Test(&incoming_, &come, &status), -1);
    if (come == 0) break;
    const int from = status.MPI_SOURCE;
    Client& its = client(from);
    if (its.payload == MPI_REQUEST_NULL)
      carry_out(from, next_.data());
    else
      its.later.push_back(next_);
    listen();
  }
  end_payloads();
  end_answers();
}

void HeapServer::carry_out(int from, const std::byte* message) {
  HeapRequest request;
  std::memcpy(&request, message, sizeof request);
  std::byte* const place = heap_ + request.offset;
  auto* const flag = reinterpret_cast<std::uint64_t*>(place);
  switch (request.kind) {
    case HeapRequest::put:
      fence_mapped();  // the rank's earlier puts may be what a fence of its has this one come after
      return copy_mapped(place, message + sizeof request, request.bytes);
    case HeapRequest::put_behind:
      check_("MPI_Irecv",
             MPI_Irecv(place, static_cast<int>(request.bytes), MPI_BYTE, from, kPayloadTag, messages_,
                       &client(from).payload),
             from);
      receiving_.push_back(from);
      return;
    case HeapRequest::get:
      return answer(from, place, request.bytes, request.reply_tag);
    case HeapRequest::set:
      return atomic_store(flag, request.value);
    case HeapRequest::add:
      atomic_add(flag, request.value);
      return;
    case HeapRequest::tell:
      return answer(from, nullptr, 0, request.reply_tag);
  }
}

void HeapServer::answer(int to, const std::byte* data, std::size_t bytes, int tag) {
  check_("MPI_Isend", MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, messages_, &answers_.emplace_back()),
         to);
}

void HeapServer::end_payloads() {
  // By index: a request that has waited may begin the next put of its rank.
  for (std::size_t i = 0; i < receiving_.size();) {
    const int from = receiving_[i];
    Client& its = client(from);
    int done = 0;
    check_("MPI_Test", MPI_Test(&its.payload, &done, MPI_STATUS_IGNORE), from);
    if (done == 0) {
      ++i;
      continue;
    }
    receiving_.erase(receiving_.begin() + static_cast<std::ptrdiff_t>(i));
    while (its.payload == MPI_REQUEST_NULL && !its.later.empty()) {
      carry_out(from, its.later.front().data());
      its.later.pop_front();
    }
  }
}

void HeapServer::end_answers() {
  for (MPI_Request& request : answers_) {
    int done = 0;
    check_("MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE), -1);  // nulls it when it is done
  }
  std::erase(answers_, MPI_REQUEST_NULL);
}

void HeapServer::close() {
  check_("MPI_Cancel", MPI_Cancel(&incoming_), -1);
  check_("MPI_Wait", MPI_Wait(&incoming_, MPI_STATUS_IGNORE), -1);
}

}  // namespace heddle

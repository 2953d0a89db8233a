#include "fabric/mpi/heap_request.h"

#include <fmt/format.h>

#include <cstring>

namespace heddle {
namespace {

bool lies_in(std::size_t heap_bytes, std::uint64_t offset, std::uint64_t bytes) {
  return offset <= heap_bytes && bytes <= heap_bytes - offset;
}

const char* name_of(HeapRequest::Kind kind) {
  switch (kind) {
    case HeapRequest::put:
    case HeapRequest::put_behind:
      return "a put";
    case HeapRequest::get:
      return "a get";
    case HeapRequest::set:
      return "a signal";
    case HeapRequest::add:
      return "a signal_add";
    case HeapRequest::tell:
      return "a question";
  }
  return nullptr;
}

}  // namespace

std::string fault_of_request(std::span<const std::byte> message, std::size_t heap_bytes) {
  HeapRequest request;
  if (message.size() < sizeof request)
    return fmt::format("a message of {} bytes, where a request has {}", message.size(), sizeof request);
  std::memcpy(&request, message.data(), sizeof request);
  const char* const name = name_of(request.kind);
  if (name == nullptr) return fmt::format("a request of kind {}, which there is not", std::uint32_t{request.kind});

  const std::size_t within = message.size() - sizeof request;
  const std::size_t expected = request.kind == HeapRequest::put ? request.bytes : 0;
  if (within != expected) return fmt::format("{} with {} bytes in its message, not {}", name, within, expected);

  switch (request.kind) {
    case HeapRequest::put:
    case HeapRequest::put_behind:
    case HeapRequest::get:
      if (request.bytes > kPieceBytes)
        return fmt::format("{} of {} bytes, more than the {} of one request", name, request.bytes, kPieceBytes);
      if (!lies_in(heap_bytes, request.offset, request.bytes))
        return fmt::format("{} of {} bytes at offset {} of a heap of {} bytes", name, request.bytes, request.offset,
                           heap_bytes);
      break;
    case HeapRequest::set:
    case HeapRequest::add:
      if (request.offset % sizeof(std::uint64_t) != 0 || !lies_in(heap_bytes, request.offset, sizeof(std::uint64_t)))
        return fmt::format("{} of a flag at offset {} of a heap of {} bytes", name, request.offset, heap_bytes);
      break;
    case HeapRequest::tell:
      break;
  }
  return {};
}

}  // namespace heddle

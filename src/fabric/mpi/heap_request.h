// What a rank asks of another rank's heap (heap_server.h), and the check of what has come. Knows no MPI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace heddle {

// The front of a message with tag HeapServer::kRequestTag. Plain data; ranks are machines of one byte order.
struct HeapRequest {
  enum Kind : std::uint32_t {
    put,         // of `bytes`, which follow in this message
    put_behind,  // of `bytes`, which follow in messages with tag kPayloadTag (bulk_transfer.h)
    get,         // of `bytes`, in messages with reply_tag, as above; `value`: gets of a stream that it comes behind
    set,         // the flag to `value`: a release
    add,         // `value` to the flag: a release
    tell         // by an empty message with reply_tag that all before is done
  };

  Kind kind = put;
  std::int32_t reply_tag = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;
};

// As large as what Open MPI sends at once, without asking the receiver first, over any of its networks.
inline constexpr std::size_t kHeapMessageBytes = 4000;
inline constexpr std::size_t kMostBytesWithin = kHeapMessageBytes - sizeof(HeapRequest);
using HeapMessage = std::array<std::byte, kHeapMessageBytes>;

// Of one request: what both sides post at once.
inline constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
// Of a message that holds nothing else than a request's bytes. With Open MPI's header it is below btl_tcp_eager_limit
// (64 KiB): it leaves without asking the receiver.
inline constexpr std::size_t kBulkMessageBytes = std::size_t{60} << 10;

// Why a message with tag kRequestTag must not be carried out on a heap of `heap_bytes` bytes, as the end of a sentence:
// "a put of 64 bytes at offset 4090 of a heap of 4096 bytes". Empty: it may be.
std::string fault_of_request(std::span<const std::byte> message, std::size_t heap_bytes);

}  // namespace heddle

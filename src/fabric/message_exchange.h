// What a fabric may have beside one-sided memory: messages that both ends know of. Between machines a message needs one
// trip, where a put, a flush and a signal need several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/tag.h"

namespace heddle {

// `peer` is a rank of the world, not the own one.
struct OutgoingMessage {
  int peer;
  const std::byte* data;
  std::size_t bytes;
};
struct IncomingMessage {
  int peer;
  std::byte* data;
  std::size_t bytes;
};

class MessageExchange {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of a message

  // Called in a task of a stream, whose other tasks it follows. Sends and receives all of them, and returns when that
  // is done. Of the messages from one rank to another on one channel the first that is sent is the first that is
  // received: both name them in the same order, with the same sizes. Channels do not disturb each other. Throws Timeout
  // and Failure as a wait does; Failure, too, when a message has another size than expected.
  virtual void exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                                 std::span<const IncomingMessage> incoming, Tag tag) = 0;

 protected:
  ~MessageExchange() = default;
};

}  // namespace heddle

// Two-sided messages, which a fabric may have beside one-sided memory. Between machines a message takes one trip, while
// a put, a flush and a signal take several.
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

  // Called in a task of a stream. Sends and receives all messages and returns when that is done. Messages from one rank
  // to another on one channel are received in the order in which they are sent: both ranks list them in the same order,
  // with the same sizes. Channels are independent. Throws Timeout and Failure as a wait does, and Failure when a
  // message has another size than expected.
  virtual void exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                                 std::span<const IncomingMessage> incoming, Tag tag) = 0;

 protected:
  ~MessageExchange() = default;
};

}  // namespace heddle

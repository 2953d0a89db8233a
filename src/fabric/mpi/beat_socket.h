// Heartbeats between ranks: small UDP datagrams, sent by a thread that no MPI call can block.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "device/tag.h"

namespace heddle {

// Where a rank receives: its machine's IPv4 addresses on the networks that the run uses. Plain data: it is sent between
// ranks.
struct BeatAddress {
  static constexpr std::size_t kMostAddresses = 32;

  std::uint16_t port = 0;  // as the machine writes it
  std::uint16_t num_addresses = 0;
  std::array<std::uint32_t, kMostAddresses> addresses{};  // as the network writes them
};

// A heartbeat. Plain data; all machines have one byte order, as MPI_BYTE requires anyway.
struct Beat {
  enum Kind : std::uint32_t { alive, failure, timeout };
  static constexpr std::uint32_t kMagic = 0x48444c32;

  std::uint32_t magic = kMagic;
  Kind kind = alive;
  std::uint64_t job = 0;
  std::int32_t rank = -1;           // who says it
  std::int32_t waiting_for = -1;    // a rank, while it waits
  Tag tag;                          // of that wait
  std::uint64_t closed = 0;         // 1: it has closed its fabric, and waits for the others to do so, too
  std::array<char, 640> trouble{};  // failure, timeout: in words; ends in a zero
};

class BeatSocket {
 public:
  // Throws Failure when the system gives no socket.
  BeatSocket();
  BeatSocket(const BeatSocket&) = delete;
  BeatSocket& operator=(const BeatSocket&) = delete;
  ~BeatSocket();

  const BeatAddress& address() const { return address_; }

  // Sends to each of the addresses, since any one may be the reachable one. Lost datagrams are not repeated.
  void send(const BeatAddress& to, const Beat& beat) const;

  // The next heartbeat received, of any job; empty if there is none.
  std::optional<Beat> receive() const;

  // Returns when something can be received, when `limit` is over, or after wake().
  void wait(std::chrono::milliseconds limit) const;
  void wake() const;

 private:
  int socket_ = -1;
  int wake_ = -1;  // an eventfd
  BeatAddress address_;
};

}  // namespace heddle

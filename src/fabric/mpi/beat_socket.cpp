#include "fabric/mpi/beat_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "fabric/mpi/tcp_interfaces.h"

namespace heddle {
namespace {

static_assert(std::is_trivially_copyable_v<Beat>);

// Those of the networks that the run is to use, as `heddle launch --interface` tells Open MPI. Loopback is always one
// of them: ranks of one machine reach each other by it, and nobody else's datagram of this job can come that way.
void add_own_addresses(BeatAddress& address) {
  const char* const chosen = std::getenv("OMPI_MCA_btl_tcp_if_include");
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    if (address.num_addresses == BeatAddress::kMostAddresses) break;
    sockaddr_in ipv4;
    std::memcpy(&ipv4, each->ifa_addr, sizeof ipv4);
    if ((each->ifa_flags & IFF_LOOPBACK) == 0 &&
        !is_in_interfaces(chosen != nullptr ? chosen : "", each->ifa_name, ipv4.sin_addr.s_addr))
      continue;
    address.addresses[address.num_addresses++] = ipv4.sin_addr.s_addr;
  }
  freeifaddrs(interfaces);
}

sockaddr_in ipv4_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = address;
  ipv4.sin_port = htons(port);
  return ipv4;
}

}  // namespace

BeatSocket::BeatSocket() {
  socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  sockaddr_in own = ipv4_address(htonl(INADDR_ANY), 0);
  socklen_t length = sizeof own;
  if (socket_ < 0 || wake_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    const int error = errno;
    if (socket_ >= 0) ::close(socket_);
    if (wake_ >= 0) ::close(wake_);
    throw_error<Failure>("mpi: no UDP socket for the ranks' signs of life: {}", std::strerror(error));
  }
  address_.port = ntohs(own.sin_port);
  add_own_addresses(address_);
}

BeatSocket::~BeatSocket() {
  ::close(socket_);
  ::close(wake_);
}

void BeatSocket::send(const BeatAddress& to, const Beat& beat) const {
  const std::size_t size = beat.kind == Beat::alive ? offsetof(Beat, trouble) : sizeof beat;
  for (std::size_t i = 0; i < to.num_addresses && i < BeatAddress::kMostAddresses; ++i) {
    const sockaddr_in ipv4 = ipv4_address(to.addresses[i], to.port);
    [[maybe_unused]] const ssize_t sent =
        ::sendto(socket_, &beat, size, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4);
  }
}

std::optional<Beat> BeatSocket::receive() const {
  while (true) {
    Beat beat;
    const ssize_t size = ::recv(socket_, &beat, sizeof beat, 0);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (size < 0) continue;  // EINTR, or an ICMP message about an earlier send
    const std::size_t expected = beat.kind == Beat::alive ? offsetof(Beat, trouble) : sizeof beat;
    if (static_cast<std::size_t>(size) < offsetof(Beat, trouble) || beat.magic != Beat::kMagic ||
        static_cast<std::size_t>(size) != expected || beat.kind > Beat::timeout)
      continue;
    beat.tag.text[Tag::kLongest] = '\0';
    beat.trouble.back() = '\0';
    return beat;
  }
}

void BeatSocket::wait(std::chrono::milliseconds limit) const {
  pollfd files[] = {{socket_, POLLIN, 0}, {wake_, POLLIN, 0}};
  ::poll(files, 2, static_cast<int>(limit.count()));
}

void BeatSocket::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

}  // namespace heddle

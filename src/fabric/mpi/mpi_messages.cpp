// MpiWorld's messages for collectives.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "fabric/mpi/mpi_library.h"
#include "fabric/mpi/mpi_world.h"

namespace heddle {

void MpiWorld::exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                                 std::span<const IncomingMessage> incoming, Tag tag) {
  throw_if_in_trouble();
  const int mpi_tag = static_cast<int>(channel % static_cast<std::uint64_t>(largest_tag_));
  std::vector<MPI_Request> receives(incoming.size(), MPI_REQUEST_NULL), sends(outgoing.size(), MPI_REQUEST_NULL);
  {
    const std::unique_lock lock = lock_mpi();
    const RankWatch::Call call(watch_, "MPI_Isend", -1);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const IncomingMessage& one = incoming[i];
      check("MPI_Irecv",
            MPI_Irecv(one.data, static_cast<int>(one.bytes), MPI_BYTE, one.peer, mpi_tag, collectives_, &receives[i]),
            one.peer);
    }
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
      const OutgoingMessage& one = outgoing[i];
      check("MPI_Isend",
            MPI_Isend(one.data, static_cast<int>(one.bytes), MPI_BYTE, one.peer, mpi_tag, collectives_, &sends[i]),
            one.peer);
    }
  }
  for (std::size_t i = 0; i < incoming.size(); ++i) await_message(receives[i], incoming[i], tag);
  for (std::size_t i = 0; i < outgoing.size(); ++i) await(sends[i], outgoing[i].peer, tag);
}

void MpiWorld::await_message(MPI_Request& request, const IncomingMessage& message, Tag tag) {
  const auto size_differs = [&](std::string_view sent) {
    watch_.declare(Beat::failure,
                   fmt::format("{}: rank {} has sent {} bytes where rank {} expects {}: the ranks' calls differ",
                               tag.view(), message.peer, sent, rank(), message.bytes));
    watch_.throw_trouble();
  };
  await(message.peer, tag, 1, [&] {
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&request, &done, &status);
    int error_class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) size_differs("more");
    check("MPI_Test", code, message.peer);
    if (done == 0) return std::uint64_t{0};
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (static_cast<std::size_t>(bytes) != message.bytes) size_differs(std::to_string(bytes));
    return std::uint64_t{1};
  });
}

}  // namespace heddle

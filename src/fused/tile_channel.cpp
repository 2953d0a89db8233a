#include "fused/tile_channel.h"

#include <utility>
#include <vector>

#include "base/copy.h"
#include "base/error.h"
#include "device/atomics.h"

namespace heddle {
namespace {

constexpr std::size_t kTileAlignment = 64;

constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
}

}  // namespace

std::size_t TileChannel::heap_bytes(int ranks, const TileChannelShape& shape) {
  const auto tiles = static_cast<std::size_t>(shape.tiles_per_rank);
  const std::size_t boxes = static_cast<std::size_t>(ranks) + (shape.pulled ? 1 : 0);
  return rounded_up(Channel::bytes(ranks, shape.tiles_per_rank)) + boxes * tiles * rounded_up(shape.tile_bytes);
}

TileChannel::TileChannel(Fabric& fabric, Ranks team, const TileChannelShape& shape, std::string_view who)
    : fabric_(&fabric), team_(std::move(team)) {
  require_capability(fabric, Capability::peer_addresses, who);
  require_team(team_, fabric.size(), fabric.rank(), who);
  require(shape.tiles_per_rank >= 1 && shape.tile_bytes >= 1, "{}: has {} tiles per rank of {} bytes", who,
          shape.tiles_per_rank, shape.tile_bytes);
  const int ranks = static_cast<int>(team_.size());
  // Every rank of the world takes as much as the largest team would, so that offsets agree between teams.
  memory_ = SymmetricMemory(fabric, heap_bytes(fabric.size(), shape));
  peers_ = fabric.peers(team_);
  slots_.channel = Channel::in(memory_.data(), ranks, shape.tiles_per_rank);
  slots_.tile_bytes = rounded_up(shape.tile_bytes);
  slots_.inbox = memory_.data() + rounded_up(Channel::bytes(ranks, shape.tiles_per_rank));
  if (shape.pulled) slots_.outbox = slots_.arriving(ranks, 0);
  // The credits that are there before first use. No peer adds to one before this rank has sent, so nobody need wait.
  const std::vector<ChannelCredit> first(
      static_cast<std::size_t>(ranks) * static_cast<std::size_t>(shape.tiles_per_rank),
      ChannelCredit{.free = {.arrived = 1, .taken = 0}, .sent = 0});
  if (fabric.device().kind == DeviceKind::cpu) {
    for (std::size_t i = 0; i < first.size(); ++i) atomic_store(&slots_.channel.credits[i].free.arrived, 1);
    return;
  }
  Stream stream(fabric.device());
  enqueue_copy(stream, slots_.channel.credits, first.data(), first.size() * sizeof(ChannelCredit));
  stream.synchronize();
}

void TileChannel::put_by(Stream& stream, int receiver, int index, const RowsToSend& rows) const {
  const int to = world_rank(receiver);
  std::byte* const destination = slots_.arriving(peers_.rank, index);
  if (rows.stride_bytes == rows.row_bytes)
    return fabric_->put(stream, to, destination, rows.data, rows.rows * rows.row_bytes);
  for (std::size_t row = 0; row < rows.rows; ++row)
    fabric_->put(stream, to, destination + row * rows.row_bytes, rows.data + row * rows.stride_bytes, rows.row_bytes);
}

void TileChannel::send_by(Stream& stream, int receiver, int index, const RowsToSend& rows) const {
  const int to = world_rank(receiver);
  fabric_->wait_next(stream, to, slots_.channel.credit(receiver, index), "copy: credit");
  put_by(stream, receiver, index, rows);
  fabric_->signal_next(stream, to, &slots_.channel.slot(peers_.rank, index)->full);
}

}  // namespace heddle

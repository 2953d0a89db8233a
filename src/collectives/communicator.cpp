#include "collectives/communicator.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "collectives/communicator_cuda.h"
#include "collectives/packet.cuh"
#include "fabric/nvlink/nccl_collectives.h"

namespace heddle {
namespace {

// On the CPU, rounds that stay in a second-level cache together with what the peers write.
CommunicatorOptions completed(CommunicatorOptions options, Device device) {
  const bool cpu = device.kind == DeviceKind::cpu;
  constexpr std::size_t kKiB = 1024;
  const auto fill = [](std::size_t& size, std::size_t otherwise_kib) {
    size = round_up(size == 0 ? otherwise_kib * kKiB : size, kKiB);
  };
  fill(options.low_latency_bytes, cpu ? 32 : 512);
  fill(options.two_phase_bytes, cpu ? 64 : 4096);
  fill(options.staging_bytes, cpu ? 512 : 16384);
  return options;
}

constexpr int kFields = 7;
struct Signature {
  std::uint64_t values[kFields];
};
constexpr const char* kSignatureFields[kFields] = {"collective",
                                                   "dtype",
                                                   "count",
                                                   "root",
                                                   "kind of memory",
                                                   "first buffer's place in the heap",
                                                   "second buffer's place in the heap"};

std::string value_text(int field, std::uint64_t value) {
  if (field == 0) return std::string(name_of(static_cast<Collective>(value)));
  if (field == 1) return std::string(name_of(static_cast<DType>(value)));
  if (field == 4) return value == static_cast<std::uint64_t>(Memory::symmetric) ? "symmetric" : "any";
  return std::to_string(value);
}

void compare(const Signature& mine, int rank, const Signature& other, int peer) {
  for (int field = 0; field < kFields; ++field)
    require(mine.values[field] == other.values[field],
            "{}: the ranks' calls differ in their {}: rank {} has {}, rank {} has {}",
            name_of(static_cast<Collective>(mine.values[0])), kSignatureFields[field], rank,
            value_text(field, mine.values[field]), peer, value_text(field, other.values[field]));
}

}  // namespace

Communicator::Communicator(Fabric& fabric, Ranks team, Stream& stream, const CommunicatorOptions& given)
    : fabric_(&fabric), team_(std::move(team)), calls_to_check_(0) {
  require_team(team_, fabric.size(), fabric.rank(), "communicator");
  require(stream.device() == fabric.device(), "communicator: a stream on {}, but the fabric's memory is on {}",
          name_of(stream.device()), name_of(fabric.device()));
  require(fabric.size() <= kMaxPeers, "communicator: a world of {} ranks; at most {} are supported", fabric.size(),
          kMaxPeers);
  const CommunicatorOptions options = completed(given, fabric.device());
  calls_to_check_ = static_cast<std::uint64_t>(std::max(0, options.checked_calls));
  rank_ = static_cast<int>(std::find(team_.begin(), team_.end(), fabric.rank()) - team_.begin());

  // Sizes by the world, not by the team: ranks outside the team allocate as much.
  const auto world = static_cast<std::size_t>(fabric.size());
  const bool peer_addresses = fabric.has(Capability::peer_addresses);
  if (peer_addresses) {
    peers_ = fabric.peers(team_);
    workspace_.buffer_bytes =
        std::max(world * options.low_latency_bytes, 2 * (options.two_phase_bytes + world * kPacketBytes));
    workspace_.inbox = fabric.allocate(3 * workspace_.buffer_bytes).data;
    workspace_.flags = reinterpret_cast<std::uint64_t*>(fabric.allocate(kMaxBlocks * world * 8).data);
    workspace_.blocks = reinterpret_cast<BlockState*>(fabric.allocate(kMaxBlocks * sizeof(BlockState)).data);
  }
  workspace_.staging_bytes = std::max(options.staging_bytes, 2 * world * std::size_t{1} << 10);
  workspace_.piece_bytes = workspace_.staging_bytes / team_.size() / kPacketBytes * kPacketBytes;
  if (peer_addresses) workspace_.staging = fabric.allocate(workspace_.staging_bytes).data;
  // Apart from the other: a rank that has ended a call by puts may put the next ones', but nobody promises that it then
  // leaves alone what the last call by another algorithm used.
  if (fabric.device().kind == DeviceKind::cpu) put_staging_ = fabric.allocate(workspace_.staging_bytes).data;
  put_flags_ = reinterpret_cast<std::uint64_t*>(fabric.allocate(world * 8).data);
  calls_ = fabric.allocate(2 * world * sizeof(Signature)).data;
  call_flags_ = reinterpret_cast<std::uint64_t*>(fabric.allocate(world * 8).data);

  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    std::optional<CutOffs> tuned;
    if (options.tuned != nullptr) tuned = tuned_cut_offs(*options.tuned, collective, fabric.name(), size());
    tables_[static_cast<std::size_t>(i)] = tuned ? *tuned : default_cut_offs(collective, fabric.name(), size());
  }
  if constexpr (kHaveCuda)
    if (options.vendor && fabric.has(Capability::vendor_collectives)) vendor_ = open_nccl(fabric, team_);

  // Nobody may push before every inbox is empty.
  if (peer_addresses) {
    std::byte* const inbox = workspace_.inbox;
    const std::size_t bytes = 3 * workspace_.buffer_bytes;
    if (fabric.device().kind == DeviceKind::cpu)
      stream.enqueue([inbox, bytes](ThreadPool&) { std::memset(inbox, 0xff, bytes); });
    else if constexpr (kHaveCuda)
      cuda::fill_empty(inbox, bytes, stream);
  }
  fabric.barrier(stream);
  fabric.synchronize(stream);
}

Communicator::~Communicator() = default;

VendorCollectives& Communicator::vendor() const {
  require(vendor_ != nullptr, "communicator: {} has no collectives of a vendor's, or they were not to be opened",
          fabric_->name());
  return *vendor_;
}

std::size_t Communicator::put_slot_bytes() const {
  return workspace_.staging_bytes / 2 / team_.size() / kPacketBytes * kPacketBytes;
}

std::byte* Communicator::put_slot(std::uint64_t sequence, int rank) const {
  return put_staging_ + (sequence % 2 * team_.size() + static_cast<std::size_t>(rank)) * put_slot_bytes();
}

bool Communicator::is_possible(Collective collective, const Choice& choice, std::size_t bytes) const {
  const std::size_t n = team_.size(), packets = packets_of(bytes);
  switch (choice.algorithm) {
    case Algorithm::low_latency: {
      if (collective == Collective::barrier) return false;
      // A slot a rank. Of what is cut into pieces only the number of bytes is known here: one packet more for each.
      const std::size_t slots = collective == Collective::all_reduce ? n * packets : packets + n;
      return bytes <= workspace_.buffer_bytes && slots * kPacketBytes <= workspace_.buffer_bytes;
    }
    case Algorithm::two_phase:
      return collective == Collective::all_reduce && packets >= n && bytes <= workspace_.buffer_bytes &&
             2 * (packets + n) * kPacketBytes <= workspace_.buffer_bytes;
    case Algorithm::vendor:
      return vendor_ != nullptr && collective != Collective::barrier;
    case Algorithm::direct:
    case Algorithm::put:
      break;
  }
  return true;
}

Choice Communicator::choose(Collective collective, std::size_t bytes) const {
  if (!fabric_->has(Capability::peer_addresses)) return {Algorithm::put};
  const Choice choice = forced_ ? *forced_ : heddle::choose(tables_[static_cast<std::size_t>(collective)], bytes);
  if (is_possible(collective, choice, bytes)) return choice;
  return {Algorithm::direct, choice.algorithm == Algorithm::vendor ? 16 : choice.blocks, choice.threads};
}

void Communicator::force(std::optional<Choice> choice) {
  if (choice) {
    const bool needs_addresses = choice->algorithm != Algorithm::put && choice->algorithm != Algorithm::vendor;
    if (needs_addresses) require_capability(*fabric_, Capability::peer_addresses, name_of(choice->algorithm));
    if (choice->algorithm == Algorithm::vendor)
      require_capability(*fabric_, Capability::vendor_collectives, name_of(choice->algorithm));
    require(choice->algorithm != Algorithm::put || fabric_->device().kind == DeviceKind::cpu,
            "collectives by puts run on the CPU; the fabric is on {}", name_of(fabric_->device()));
    require(choice->blocks >= 1 && choice->blocks <= kMaxBlocks, "a collective has 1 to {} blocks, not {}", kMaxBlocks,
            choice->blocks);
    require(choice->threads >= 32 && choice->threads <= 512 && choice->threads % 32 == 0,
            "a collective's block has 32 to 512 threads, whole warps, not {}", choice->threads);
  }
  forced_ = choice;
}

void Communicator::check(const Call& call, Stream& stream) {
  if (calls_checked_ >= calls_to_check_ || size() == 1) return;
  const std::uint64_t sequence = ++calls_checked_;
  const Signature mine{{static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.dtype), call.count,
                        call.root, static_cast<std::uint64_t>(call.buffers.memory), call.buffers.offsets[0],
                        call.buffers.offsets[1]}};
  // Two sets of slots suffice: a rank writes those of call k + 2 after it has heard of all in call k + 1, for which
  // they had ended call k.
  auto* const slots = reinterpret_cast<Signature*>(calls_) + sequence % 2 * team_.size();
  enqueue_copy(stream, slots + rank_, &mine, sizeof(mine));
  fabric_->synchronize(stream);  // `mine` ends with this call
  for (int p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    fabric_->put(stream, team_[static_cast<std::size_t>(p)], slots + rank_, slots + rank_, sizeof(mine));
    fabric_->signal(stream, team_[static_cast<std::size_t>(p)], call_flags_ + rank_, sequence);
  }
  for (int p = 0; p < size(); ++p)
    if (p != rank_) fabric_->wait(stream, team_[static_cast<std::size_t>(p)], call_flags_ + p, sequence, "same call?");
  fabric_->synchronize(stream);
  std::vector<Signature> all(team_.size());
  enqueue_copy(stream, all.data(), slots, all.size() * sizeof(Signature));
  fabric_->synchronize(stream);
  for (int p = 0; p < size(); ++p)
    compare(mine, fabric_->rank(), all[static_cast<std::size_t>(p)], team_[static_cast<std::size_t>(p)]);
}

}  // namespace heddle

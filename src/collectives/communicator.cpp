#include "collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/lane.h"
#include "collectives/communicator_cuda.h"
#include "collectives/pipeline.cuh"
#include "collectives/pipelined_broadcast.cuh"
#include "device/low_latency.cuh"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/symmetric_heap.h"

namespace heddle {
namespace {

// On the CPU, rounds that stay in the L2 cache together with what peers write. On GPUs the sizes of the cut-offs in
// algorithm.cpp, up to the largest call. Chunks of a pipelined call have 16 KiB with up to four ranks and are smaller
// with more, because a block pushes a chunk to each rank per step: docs/notes/collectives.md.
CommunicatorOptions completed(CommunicatorOptions options, Device device, std::size_t world) {
  const bool cpu = device.kind == DeviceKind::cpu;
  constexpr std::size_t kKiB = 1024, kTwoPhaseKiB = 4096;
  const auto fill = [](std::size_t& size, std::size_t otherwise_kib) {
    size = round_up(size == 0 ? otherwise_kib * kKiB : size, kKiB);
  };
  const std::size_t largest = std::max<std::size_t>(1, ceil_div(options.largest_bytes, kKiB));
  fill(options.low_latency_bytes, cpu ? 32 : std::min<std::size_t>(largest, 512));
  fill(options.two_phase_bytes, cpu ? 64 : std::min(largest, kTwoPhaseKiB));
  fill(options.staging_bytes, cpu ? 512 : std::min<std::size_t>(largest, 16384));
  fill(options.pipeline_bytes, cpu ? 512 : largest > kTwoPhaseKiB ? 8192 * std::min<std::size_t>(world, 4) : 0);
  return options;
}

std::string text_of(const Ranks& team) {
  std::string text;
  for (const int rank : team) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// Calls that are compared by default where ranks share no memory.
constexpr std::uint64_t kComparedByMessages = 8;

// Whether ranks are threads or processes of one machine's CPU.
bool shares_memory(const Fabric& fabric) {
  return fabric.device().kind == DeviceKind::cpu && fabric.has(Capability::peer_addresses);
}

// What lies in the symmetric heap.
struct HeapParts {
  std::byte* members = nullptr;  // [rank], of row_length() each, for compare_members
  CollectiveMemory memory;
  std::byte* put_staging = nullptr;
  std::uint64_t* put_flags = nullptr;
  CallSignature* calls = nullptr;
  std::uint64_t* call_flags = nullptr;
};

// Ints by which a rank says what it is a member of: its team, -1 after the last, and its SMs.
std::size_t row_length(std::size_t world) {
  return world + 1;
}

// Of the lanes of this rank's calls; 0 on the CPU.
int sms_of(const Fabric& fabric) {
  const DeviceShare share = fabric.device_share();
  return share.ranks > 1 ? share.sms : num_sms_of(fabric.device());
}

// Sizes depend on the world, not on the team: ranks outside the team allocate as much.
template <class Allocate>
HeapParts heap_parts(const CommunicatorOptions& options, std::size_t world, DeviceKind device, bool peer_addresses,
                     Allocate allocate) {
  HeapParts parts{.members = allocate(world * row_length(world) * sizeof(int))};
  CollectiveMemory& memory = parts.memory;
  const auto flags_of = [&](std::size_t count) {
    return reinterpret_cast<std::uint64_t*>(allocate(count * sizeof(std::uint64_t)));
  };
  if (peer_addresses) {
    memory.buffer_bytes =
        std::max(world * options.low_latency_bytes, 2 * (options.two_phase_bytes + world * kPacketBytes));
    memory.inbox = allocate(kInboxBuffers * memory.buffer_bytes);
    memory.codes = reinterpret_cast<std::uint8_t*>(allocate(kInboxBuffers * packets_of(memory.buffer_bytes)));
    memory.flags = flags_of(kMaxBlocks * world);
    memory.blocks = reinterpret_cast<BlockState*>(allocate(kMaxBlocks * sizeof(BlockState)));
    memory.slots_bytes = options.pipeline_bytes;
    memory.slots = allocate(memory.slots_bytes);
    memory.shares_come = flags_of(kMaxBlocks * world);
    memory.sums_come = flags_of(kMaxBlocks * world);
    if (device == DeviceKind::cpu) {
      memory.root_slots = allocate(memory.slots_bytes);
      memory.parts_come = flags_of(world);
      memory.parts_taken = flags_of(world);
      memory.root_parts = flags_of(world);
    }
  }
  memory.staging_bytes = std::max(options.staging_bytes, 2 * world * std::size_t{1} << 10);
  if (peer_addresses) memory.staging = allocate(memory.staging_bytes);
  // Not the staging of the other algorithms: a rank that has ended a call by puts may already put data of the next call
  // while a peer still uses the staging of an earlier call.
  if (device == DeviceKind::cpu) parts.put_staging = allocate(memory.staging_bytes);
  parts.put_flags = flags_of(world);
  parts.calls = reinterpret_cast<CallSignature*>(allocate(2 * world * sizeof(CallSignature)));
  parts.call_flags = flags_of(world);
  return parts;
}

// The sum of the sizes, each aligned, that `parts` (a call of heap_parts) allocates.
template <class Parts>
std::size_t bytes_of(const Parts& parts) {
  std::size_t bytes = 0;
  parts([&bytes](std::size_t size) -> std::byte* {
    bytes += round_up(size, SymmetricHeap::kAlignment);
    return nullptr;
  });
  return bytes;
}

}  // namespace

Communicator::Communicator(Fabric& fabric, Ranks team, Stream& stream, const CommunicatorOptions& given)
    : fabric_(&fabric), team_(std::move(team)), calls_to_check_(0) {
  require_team(team_, fabric.size(), fabric.rank(), "communicator");
  require(stream.device() == fabric.device(), "communicator: a stream on {}, but the fabric's memory is on {}",
          name_of(stream.device()), name_of(fabric.device()));
  require(fabric.size() <= kMaxPeers, "communicator: a world of {} ranks; collectives are for {} at most",
          fabric.size(), kMaxPeers);
  const auto world = static_cast<std::size_t>(fabric.size());
  const CommunicatorOptions options = completed(given, fabric.device(), world);
  if (options.checked_calls != CommunicatorOptions::kAsSuitsTheFabric)
    calls_to_check_ = static_cast<std::uint64_t>(std::max(0, options.checked_calls));
  else
    calls_to_check_ = shares_memory(fabric) ? std::numeric_limits<std::uint64_t>::max() : kComparedByMessages;
  rank_ = static_cast<int>(std::find(team_.begin(), team_.end(), fabric.rank()) - team_.begin());

  const bool peer_addresses = fabric.has(Capability::peer_addresses);
  const auto lay_out = [&](const auto& allocate) {
    return heap_parts(options, world, fabric.device().kind, peer_addresses, allocate);
  };
  heap_memory_ = SymmetricMemory(fabric, bytes_of(lay_out));
  const HeapParts parts = lay_out([next = heap_memory_.data()](std::size_t bytes) mutable {
    return std::exchange(next, next + round_up(bytes, SymmetricHeap::kAlignment));
  });
  compare_members(parts.members, stream);
  collective_memory_ = parts.memory;
  collective_memory_.piece_bytes = collective_memory_.staging_bytes / team_.size() / kPacketBytes * kPacketBytes;
  put_staging_ = parts.put_staging;
  put_flags_ = parts.put_flags;
  calls_ = parts.calls;
  call_flags_ = parts.call_flags;
  if (peer_addresses) peers_ = fabric.peers(team_);
  if (shares_memory(fabric)) {
    call_check_.emplace(peers_, calls_, call_flags_);
    static_cast<Peers&>(checked_peers_) = peers_;
    checked_peers_.waits = {peers_.waits, &*call_check_};
  }

  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    std::optional<CutOffs> tuned;
    if (options.tuned != nullptr) tuned = tuned_cut_offs(*options.tuned, collective, fabric.name(), size());
    tables_[static_cast<std::size_t>(i)] = tuned ? *tuned : default_cut_offs(collective, fabric.name(), size());
  }
  if constexpr (kHaveCuda)
    if (options.vendor && fabric.has(Capability::vendor_collectives)) vendor_ = open_nccl(fabric, team_);

  // No rank may push before every inbox is empty.
  if (peer_addresses) {
    std::byte* const inbox = collective_memory_.inbox;
    const std::size_t bytes = kInboxBuffers * collective_memory_.buffer_bytes;
    if (fabric.device().kind == DeviceKind::cpu)
      stream.enqueue([inbox, bytes](ThreadPool&) { std::memset(inbox, 0xff, bytes); });
    else if constexpr (kHaveCuda)
      cuda::fill_empty(inbox, bytes, stream);
  }
  fabric.barrier(stream);
  fabric.synchronize(stream);
}

Communicator::~Communicator() = default;

std::size_t Communicator::heap_bytes(int world_size, Device device, const CommunicatorOptions& options) {
  const auto world = static_cast<std::size_t>(world_size);
  return bytes_of([&](const auto& allocate) {
    return heap_parts(completed(options, device, world), world, device.kind, true, allocate);
  });
}

VendorCollectives& Communicator::vendor() const {
  require(vendor_ != nullptr, "communicator: {} has no collectives of a vendor's, or they were not to be opened",
          fabric_->name());
  return *vendor_;
}

std::size_t Communicator::put_slot_bytes() const {
  return collective_memory_.staging_bytes / 2 / team_.size() / kPacketBytes * kPacketBytes;
}

std::byte* Communicator::put_slot(std::uint64_t sequence, int rank) const {
  return put_staging_ + (sequence % 2 * team_.size() + static_cast<std::size_t>(rank)) * put_slot_bytes();
}

bool Communicator::is_possible(Collective collective, const Choice& choice, std::size_t bytes, Memory memory) const {
  const std::size_t n = team_.size(), packets = packets_of(bytes);
  switch (choice.algorithm) {
    case Algorithm::low_latency: {
      if (collective == Collective::barrier) return false;
      // One slot per rank. For buffers cut into pieces only the total is known here: one packet more for each piece.
      const std::size_t slots = collective == Collective::all_reduce ? n * packets : packets + n;
      return bytes <= collective_memory_.buffer_bytes && slots * kPacketBytes <= collective_memory_.buffer_bytes;
    }
    case Algorithm::two_phase:
      return collective == Collective::all_reduce && packets >= n && bytes <= collective_memory_.buffer_bytes &&
             2 * (packets + n) * kPacketBytes <= collective_memory_.buffer_bytes;
    case Algorithm::pipelined:
      if (collective == Collective::all_reduce)
        return memory == Memory::symmetric &&
               ChunkCut::chunk_bytes(collective_memory_.slots_bytes, blocks_of(choice), size()) > 0;
      return collective == Collective::broadcast && PipelinedBroadcast::slot_bytes(collective_memory_) > 0 &&
             collective_memory_.root_slots != nullptr;
    case Algorithm::vendor:
      return vendor_ != nullptr && collective != Collective::barrier;
    case Algorithm::direct:
    case Algorithm::put:
      break;
  }
  return true;
}

// Pipelined calls are large. Where they are not possible, `direct` would copy to staging and back; from some size on
// NCCL is faster.
Choice Communicator::instead_of(const Choice& choice, std::size_t bytes) const {
  constexpr int kBlocksOfDirect = 64;  // more are no faster (docs/notes/collectives.md)
  constexpr std::size_t kMostStaged = std::size_t{32} << 20;
  if (choice.algorithm == Algorithm::vendor) return {Algorithm::direct, 16, choice.threads};
  if (choice.algorithm == Algorithm::pipelined && !forced_ && vendor_ != nullptr && bytes > kMostStaged)
    return {Algorithm::vendor};
  return {Algorithm::direct, std::min(choice.blocks, kBlocksOfDirect), choice.threads};
}

Choice Communicator::choose(Collective collective, std::size_t bytes, Memory memory, int most_blocks,
                            const std::optional<Choice>& asked) const {
  if (!fabric_->has(Capability::peer_addresses)) return {Algorithm::put};
  // Where ranks share a GPU, the blocks of all must be resident at once.
  const DeviceShare share = fabric_->device_share();
  const auto within_share = [&](Choice choice) {
    if (share.ranks > 1) choice.blocks = std::clamp(choice.blocks, 1, std::max(1, share.sms));
    if (most_blocks > 0) choice.blocks = std::min(choice.blocks, most_blocks);
    return choice;
  };
  const Choice choice = within_share(forced_ ? *forced_
                                     : asked ? *asked
                                             : heddle::choose(tables_[static_cast<std::size_t>(collective)], bytes));
  return is_possible(collective, choice, bytes, memory) ? choice : within_share(instead_of(choice, bytes));
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

// Every rank sees every team of the world, so all throw, and the same.
void Communicator::compare_members(const std::byte* members, Stream& stream) {
  const auto world = static_cast<std::size_t>(fabric_->size());
  const std::size_t row_bytes = row_length(world) * sizeof(int);
  std::vector<int> mine = team_;
  mine.resize(world, -1);
  mine.push_back(sms_of(*fabric_));
  auto* const row = const_cast<std::byte*>(members) + static_cast<std::size_t>(fabric_->rank()) * row_bytes;
  enqueue_copy(stream, row, mine.data(), row_bytes);
  for (int peer = 0; peer < fabric_->size(); ++peer)
    if (peer != fabric_->rank()) fabric_->put(stream, peer, row, row, row_bytes);
  fabric_->barrier(stream);
  fabric_->synchronize(stream);
  std::vector<int> all(world * row_length(world));
  enqueue_copy(stream, all.data(), members, world * row_bytes);
  fabric_->synchronize(stream);

  const auto row_of = [&](int rank) {
    return std::span(all).subspan(row_length(world) * static_cast<std::size_t>(rank), row_length(world));
  };
  const auto team_of = [&](int rank) {
    const auto places = row_of(rank).first(world);
    return Ranks(places.begin(), std::ranges::find(places, -1));
  };
  for (int rank = 0; rank < fabric_->size(); ++rank)
    for (const int member : team_of(rank)) {
      require(team_of(member) == team_of(rank),
              "communicator: rank {} names the team [{}], but rank {} of it names [{}]: every rank of a team names "
              "the same ranks in the same order",
              rank, text_of(team_of(rank)), member, text_of(team_of(member)));
      const int sms = row_of(rank).back(), others = row_of(member).back();
      require(sms == others,
              "communicator: rank {} has {} SMs, rank {} has {}: ranks of a team need as many, because the blocks of a "
              "collective follow from them; give each rank a GPU of the same model, for example by "
              "CUDA_VISIBLE_DEVICES, and as many ranks to each GPU",
              rank, sms, member, others);
    }
}

std::optional<CallSignature> Communicator::check(const Call& call, const Choice& choice, Stream& stream) {
  if (calls_checked_ >= calls_to_check_ || size() == 1) return std::nullopt;
  ++calls_checked_;
  const CallSignature mine{{static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.dtype),
                            call.count, call.root, static_cast<std::uint64_t>(call.buffers.memory),
                            call.buffers.offsets[0], call.buffers.offsets[1]}};
  if (!call_check_) {
    compare_by_puts(mine, stream);
    return std::nullopt;
  }
  // A call that begins with a barrier compares in it; before, it touches no buffer.
  const bool begins_with_barrier = call.count > 0 || call.collective == Collective::barrier;
  if (choice.algorithm == Algorithm::direct && begins_with_barrier) return mine;
  const bool in_the_call = choice.algorithm == Algorithm::put;  // it counts its exchanges as it enqueues them
  stream.enqueue([this, mine](ThreadPool&) {
    call_check_->announce(mine);
    try {
      static_cast<void>(call_check_->hear_all());  // what lasts too long is thrown by synchronize()
    } catch (const InvalidArgument&) {
      ++collective_memory_.blocks->barriers_passed;  // others may have entered theirs
      throw;
    }
  });
  if (in_the_call) fabric_->synchronize(stream);
  return std::nullopt;
}

void Communicator::compare_by_puts(CallSignature mine, Stream& stream) {
  mine.number = calls_checked_;
  CallSignature* const slots = calls_ + calls_checked_ % 2 * team_.size();
  enqueue_copy(stream, slots + rank_, &mine, sizeof(mine));
  fabric_->synchronize(stream);  // `mine` ends with this call
  for (int p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    fabric_->put(stream, team_[static_cast<std::size_t>(p)], slots + rank_, slots + rank_, sizeof(mine));
    fabric_->signal(stream, team_[static_cast<std::size_t>(p)], call_flags_ + rank_, calls_checked_);
  }
  for (int p = 0; p < size(); ++p)
    if (p != rank_)
      fabric_->wait(stream, team_[static_cast<std::size_t>(p)], call_flags_ + p, calls_checked_, "same call?");
  fabric_->synchronize(stream);
  std::vector<CallSignature> all(team_.size());
  enqueue_copy(stream, all.data(), slots, all.size() * sizeof(CallSignature));
  fabric_->synchronize(stream);
  std::string difference;
  for (std::size_t p = 0; p < all.size() && difference.empty(); ++p)
    difference = difference_of(mine, fabric_->rank(), all[p], team_[p]);
  if (difference.empty()) return;
  try {  // every rank sees a difference; no rank ends its fabric before all have
    fabric_->barrier(stream, team_);
    fabric_->synchronize(stream);
  } catch (const Failure&) {  // a rank has gone; the difference says more
  }
  throw InvalidArgument(difference);
}

}  // namespace heddle

// A team of ranks that calls collectives: what one rank holds for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "base/stream.h"
#include "collectives/algorithm.h"
#include "collectives/call_check.h"
#include "collectives/collective_memory.h"
#include "fabric/fabric.h"
#include "fabric/symmetric_memory.h"

namespace heddle {

class TunedStore;
class VendorCollectives;

// Where a call's buffers lie.
enum class Memory : std::uint8_t {
  any,       // of the fabric's device: copied to and from symmetric memory where the algorithm needs that
  symmetric  // what the others read or write (each header says which) lies in the symmetric heap, at the same offset on
             // every rank, aligned to 16 bytes: nothing is copied. Every rank must say the same
};

// Where a call's buffers lie, as the ranks compare it.
struct BufferPlaces {
  Memory memory = Memory::any;
  std::uint64_t offsets[2] = {};  // in the heap, of those that are symmetric
};

struct CommunicatorOptions {
  // On GPUs: the larger buffer of the largest call that is to go the fastest way. Larger ones work, but between
  // barriers, and in rounds of that size where they are not symmetric. So many bytes decide how much of the heap n ranks
  // take: 3.2 times max(n min(L, 512 KiB), 2 min(L, 4 MiB)) for packets, min(L, 16 MiB) of staging, and from 4 MiB on
  // 8 min(n, 4) MiB of slots for pipelined calls.
  std::size_t largest_bytes = std::size_t{2} << 20;

  // Each of them; 0: as above, and on the CPU what suits its caches.
  std::size_t low_latency_bytes = 0;  // the most that low_latency takes from one rank
  std::size_t two_phase_bytes = 0;    // the most that two_phase takes
  std::size_t staging_bytes = 0;      // a round of what is copied
  std::size_t pipeline_bytes = 0;  // of slots that pipelined calls use; on the CPU 512 KiB, and as many for broadcasts
  const TunedStore* tuned = nullptr;  // whose cut-offs to use; null: the defaults

  bool vendor = true;  // open NCCL's collectives, where the fabric has them; that takes seconds

  // Of how many calls, from the first on, the ranks compare collective, dtype, count, root and where symmetric buffers
  // lie before they begin. Ranks that differ get an InvalidArgument, each of them, that names a rank and its value; no
  // buffer has been touched then.
  //   - On the CPU, where ranks share memory: in stream order, for the price of a cache line from each rank, so by
  //     default in every call; synchronize() throws (by puts, the call itself). What has no barrier waits for all ranks
  //     here.
  //   - Elsewhere (GPUs; machines): the call itself waits for the others and throws, so it cannot be captured in a
  //     graph; by default the first 8. Of later ones that differ, between machines, those whose messages have other
  //     sizes are named all the same; the others, and all on GPUs, end in a Timeout or, where too little is waited for,
  //     in wrong results: more cannot be told without a message of its own.
  // Every rank gives the same number.
  static constexpr int kAsSuitsTheFabric = -1;
  int checked_calls = kAsSuitsTheFabric;
};

// One for each rank and team; the ranks of a team call the same collectives in the same order on it, on one stream at a
// time. Stays where it is made, and outlives the work that is enqueued on it.
class Communicator {
 public:
  // Collective over the fabric's world (it allocates symmetric memory, and releases it at its end): ranks that are not of the team make one of
  // another team meanwhile, be it of themselves alone. `team` names ranks of the world, the caller among them. Throws
  // InvalidArgument for what is no team, and on every rank of the world where ranks of one team name it differently;
  // Failure when the symmetric heap is too small.
  Communicator(Fabric& fabric, Ranks team, Stream& stream, const CommunicatorOptions& options = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // The most that a communicator with such options takes of each rank's symmetric heap while it lives, and takes where
  // ranks have each other's addresses.
  static std::size_t heap_bytes(int world_size, Device device, const CommunicatorOptions& options = {});

  int rank() const { return rank_; }  // in the team
  int size() const { return static_cast<int>(team_.size()); }
  Fabric& fabric() const { return *fabric_; }
  const Ranks& team() const { return team_; }

  // What a call of that size runs with, its buffers of that memory: as forced, as tuned or by default, and possible
  // here.
  Choice choose(Collective collective, std::size_t bytes, Memory memory = Memory::any) const;

  // Of a call here: on the CPU one, whatever the choice says.
  int blocks_of(const Choice& choice) const { return fabric_->device().kind == DeviceKind::cpu ? 1 : choice.blocks; }

  // Lets every later call run with that choice; nothing: with the tables again. Throws InvalidArgument when the fabric
  // has not what it needs. What an algorithm has no room for, or not the memory, goes another way still.
  void force(std::optional<Choice> choice);

  // Takes another table for calls that are not forced, such as one just measured.
  void use(Collective collective, CutOffs table) { tables_[static_cast<std::size_t>(collective)] = std::move(table); }

  // What the files beside this one work with.
  const Peers& peers() const { return peers_; }
  const CollectiveMemory& collective_memory() const { return collective_memory_; }
  VendorCollectives& vendor() const;
  std::byte* put_slot(std::uint64_t sequence, int rank) const;  // where `rank`'s put number `sequence` lands
  std::size_t put_slot_bytes() const;
  std::uint64_t* put_flag(int rank) const { return put_flags_ + rank; }
  std::uint64_t next_put() { return ++puts_; }

  // What the ranks must agree on, once in each call.
  struct Call {
    Collective collective;
    DType dtype;
    std::uint64_t count;
    std::uint64_t root = 0;
    BufferPlaces buffers = {};
  };
  // As CommunicatorOptions::checked_calls says. What is returned is for run_on_cpu(): the call is compared there.
  std::optional<CallSignature> check(const Call& call, const Choice& choice, Stream& stream);

  // Enqueues program(HostThread, peers, memory): the CPU's way to run what kernels run. With a signature its waits
  // compare the call first.
  template <class Program>
  void run_on_cpu(const Program& program, Stream& stream, const std::optional<CallSignature>& to_compare = {});

 private:
  void compare_teams(const std::byte* teams, Stream& stream);
  void compare_by_puts(CallSignature mine, Stream& stream);
  bool is_possible(Collective collective, const Choice& choice, std::size_t bytes, Memory memory) const;
  Choice instead_of(const Choice& choice, std::size_t bytes) const;

  Fabric* fabric_;
  SymmetricMemory heap_memory_;  // all that is said to be symmetric below
  Ranks team_;
  int rank_;
  Peers peers_;  // where the fabric has peer addresses
  CollectiveMemory collective_memory_;
  std::array<CutOffs, kNumCollectives> tables_;
  std::optional<Choice> forced_;
  std::unique_ptr<VendorCollectives> vendor_;

  std::byte* put_staging_ = nullptr;    // two halves of a slot a rank, symmetric
  std::uint64_t* put_flags_ = nullptr;  // [ranks], symmetric
  std::uint64_t puts_ = 0;

  CallSignature* calls_ = nullptr;       // [2][ranks], symmetric
  std::uint64_t* call_flags_ = nullptr;  // [ranks], symmetric
  std::uint64_t calls_checked_ = 0;
  std::uint64_t calls_to_check_;
  std::optional<CallCheck> call_check_;  // where ranks share memory
  HearingPeers hearing_peers_;
};

}  // namespace heddle

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
  symmetric  // the buffers that peers read or write (each header says which) lie in the symmetric heap, at the same
             // offset on every rank, aligned to 16 bytes: nothing is copied. Every rank must pass the same value
};

// The same in the form that ranks compare.
struct BufferPlaces {
  Memory memory = Memory::any;
  std::uint64_t offsets[2] = {};  // of symmetric buffers in the heap
};

struct CommunicatorOptions {
  // On GPUs: L, the size of the largest call that uses the fastest algorithm, by the larger of its two buffers. Larger
  // calls work, too: between barriers, and in rounds of L bytes if the buffers are not symmetric. L determines how much
  // of the heap a communicator of n ranks takes: 3.2 max(n min(L, 512 KiB), 2 min(L, 4 MiB)) for packets, min(L, 16
  // MiB) of staging, and, for L > 4 MiB, 8 min(n, 4) MiB of slots for pipelined calls.
  std::size_t largest_bytes = std::size_t{2} << 20;

  // Each size by itself; 0: as largest_bytes says, and on the CPU a size that suits its caches.
  std::size_t low_latency_bytes = 0;  // the largest buffer of one rank for low_latency
  std::size_t two_phase_bytes = 0;    // the largest buffer for two_phase
  std::size_t staging_bytes = 0;      // a round of a staged call
  std::size_t pipeline_bytes = 0;  // of slots that pipelined calls use; on the CPU 512 KiB, and as many for broadcasts
  const TunedStore* tuned = nullptr;  // whose cut-offs to use; null: the defaults

  bool vendor = true;  // open NCCL's collectives, where the fabric has them; that takes seconds

  // In how many calls, from the first on, ranks compare collective, dtype, count, root and the offsets of symmetric
  // buffers before they begin. If they differ, every rank gets an InvalidArgument that names a rank and its value, and
  // no buffer has been touched. Every rank gives the same number.
  //   - CPU ranks that share memory compare in stream order, at the cost of a cache line per rank; by default in every
  //     call. synchronize() throws (with Algorithm::put, the call itself). A call without a barrier waits for all ranks
  //     here.
  //   - Elsewhere (GPUs, several machines) the call itself waits for the others and throws, so it cannot be captured in
  //     a graph; by default the first 8. Later calls are not compared: between machines a message of another size is
  //     still named; any other difference ends in a Timeout or in wrong results.
  static constexpr int kAsSuitsTheFabric = -1;
  int checked_calls = kAsSuitsTheFabric;
};

// One for each rank and team. The ranks of a team call the same collectives in the same order, on one stream at a time.
// It outlives the work that is enqueued on it.
class Communicator {
 public:
  // Collective over the fabric's world (it allocates symmetric memory, and releases it at its end): ranks that are not
  // of the team make one of another team meanwhile, be it of themselves alone. `team` names ranks of the world, the
  // caller among them. Throws InvalidArgument for what is no team, and on every rank of the world where ranks of one
  // team name it differently or have GPUs with different numbers of SMs; Failure when the symmetric heap is too small.
  Communicator(Fabric& fabric, Ranks team, Stream& stream, const CommunicatorOptions& options = {});
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  // Bytes of each rank's symmetric heap that a communicator with these options takes while it lives, at most: with peer
  // addresses.
  static std::size_t heap_bytes(int world_size, Device device, const CommunicatorOptions& options = {});

  int rank() const { return rank_; }  // in the team
  int size() const { return static_cast<int>(team_.size()); }
  Fabric& fabric() const { return *fabric_; }
  const Ranks& team() const { return team_; }

  // The choice for a call of that size and memory: forced, asked, tuned or the default, and replaced where it is not
  // possible here. With at most so many blocks; 0: as many as it says.
  Choice choose(Collective collective, std::size_t bytes, Memory memory = Memory::any, int most_blocks = 0,
                const std::optional<Choice>& asked = {}) const;

  // Blocks of a call: on the CPU 1, whatever the choice says.
  int blocks_of(const Choice& choice) const { return fabric_->device().kind == DeviceKind::cpu ? 1 : choice.blocks; }

  // Makes every later call use that choice; nullopt: the tables again. Throws InvalidArgument if the fabric lacks a
  // capability that it needs. A call that the algorithm has no space for, or not the right memory, still uses another.
  void force(std::optional<Choice> choice);

  // Replaces the table for calls that are not forced, for example by one just measured.
  void use(Collective collective, CutOffs table) { tables_[static_cast<std::size_t>(collective)] = std::move(table); }

  // For the other files of this module.
  const Peers& peers() const { return peers_; }
  const CollectiveMemory& collective_memory() const { return collective_memory_; }
  VendorCollectives& vendor() const;
  std::byte* put_slot(std::uint64_t sequence, int rank) const;  // where `rank`'s put number `sequence` lands
  std::size_t put_slot_bytes() const;
  std::uint64_t* put_flag(int rank) const { return put_flags_ + rank; }
  std::uint64_t next_put() { return ++puts_; }

  // What the ranks must agree on in each call.
  struct Call {
    Collective collective;
    DType dtype;
    std::uint64_t count;
    std::uint64_t root = 0;
    BufferPlaces buffers = {};
  };
  // Compares the call as CommunicatorOptions::checked_calls says. A signature that is returned is for run_on_cpu(),
  // which then compares it.
  std::optional<CallSignature> check(const Call& call, const Choice& choice, Stream& stream);

  // Enqueues program(HostThread, peers, memory): the CPU's way to run what kernels run. With a signature, its waits
  // compare the call first.
  template <class Program>
  void run_on_cpu(const Program& program, Stream& stream, const std::optional<CallSignature>& to_compare = {});

 private:
  void compare_members(const std::byte* members, Stream& stream);
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

  std::byte* put_staging_ = nullptr;    // [2][ranks] slots, symmetric
  std::uint64_t* put_flags_ = nullptr;  // [ranks], symmetric
  std::uint64_t puts_ = 0;

  CallSignature* calls_ = nullptr;       // [2][ranks], symmetric
  std::uint64_t* call_flags_ = nullptr;  // [ranks], symmetric
  std::uint64_t calls_checked_ = 0;
  std::uint64_t calls_to_check_;
  std::optional<CallCheck> call_check_;  // where ranks share memory
  CheckedPeers checked_peers_;
};

}  // namespace heddle

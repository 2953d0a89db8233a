// What the ranks of a model reach each other by. They are threads of this process, on the CPU or on GPUs that some of
// them may share; or processes on one machine or several, of which this is one.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "engine/rank_facts.h"
#include "engine/symmetric_step_bytes.h"
#include "parallel/rank_grid.h"
#include "parallel/tp_mode.h"

namespace heddle {

class AllReduceNorm;
class Communicator;
class ControlLine;
class Fabric;

struct RankWorldOptions {
  TpMode mode = TpMode::standard;
  SymmetricStepBytes step_bytes;        // of the largest steps (symmetric_step_bytes(), step_memory.h)
  std::chrono::nanoseconds deadline{};  // of each wait for another rank
  int context_ranks = 1;                // that divide keys and values, for each part of the weights (RankGrid)
};

class RankWorld {
 public:
  // Rank i is on devices[i]; all of one kind; options.context_ranks divides their number. Throws what the fabrics
  // throw, and Failure when the system cannot start a thread; InputError for a mode that cannot run on them
  // (require_tp_mode). For ranks that share a GPU see prepare_shared_gpus.
  RankWorld(std::span<const Device> devices, const RankWorldOptions& options);
  RankWorld(const RankWorld&) = delete;
  RankWorld& operator=(const RankWorld&) = delete;
  ~RankWorld();  // the ranks part together; their work has ended

  // This process as one rank of a run that `heddle launch` has started, on the CPU: over `shm` on one machine, over
  // `hierarchical` on several, or over the fabric that HEDDLE_FABRIC names. Collective. The ranks meet over a small
  // fabric first, where they compare `facts` and agree on rank 0's mode and on the most symmetric memory of steps that
  // any of them has found; then the fabric of the run is made. Throws as open_fabric and require_equal_facts.
  static std::unique_ptr<RankWorld> join(const RankWorldOptions& options, const std::vector<RankFact>& facts);

  int size() const { return static_cast<int>(ranks_.size()); }
  TpMode mode() const { return mode_; }  // of processes rank 0's, which may have resolved TpMode::automatic
  const RankGrid& grid() const { return grid_; }

  // Of processes: the other ranks' functions below must not be called.
  bool of_processes() const { return line_ != nullptr; }
  int own_rank() const { return own_rank_; }
  ControlLine& line() const { return *line_; }  // of_processes()

  Fabric& fabric(int rank) const { return *ranks_[static_cast<std::size_t>(rank)].fabric; }
  // Of the ranks with which this one divides the weights.
  Communicator& communicator(int rank) const { return *ranks_[static_cast<std::size_t>(rank)].communicator; }

  // Null in modes that have none.
  AllReduceNorm* all_reduce_norm(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].all_reduce_norm.get();
  }

  // Whether the rank warms up by itself: nothing crosses ranks (ModelRank::alone). Its own thread writes and reads it.
  bool& alone(int rank) { return ranks_[static_cast<std::size_t>(rank)].alone; }

  // SMs that a rank's step may hold at a time; 0: all, and on the CPU.
  int sms_of_step(int rank) const;

  // Ends the waits of all ranks' work, after `rank` has failed. Any rank's thread may call it, once its cause is known.
  // `cause`: the error of all ranks that are processes (Fabric::abandon).
  void abandon(int rank, std::string_view cause = {});

 private:
  explicit RankWorld(const RankGrid& grid);

  struct Member {
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<AllReduceNorm> all_reduce_norm;
    bool alone = false;
  };

  RankGrid grid_;
  std::vector<Member> ranks_;
  TpMode mode_ = TpMode::standard;
  int own_rank_ = 0;  // of_processes()
  std::unique_ptr<ControlLine> line_;
};

// Symmetric memory of each rank's fabric: that of collectives, of the operators of the mode, and options.step_bytes.
std::size_t exchange_bytes(std::span<const Device> devices, const RankWorldOptions& options);

// Ranks that share a GPU need CUDA to load all kernels when it starts, and a hardware queue for each stream. To be
// called before anything asks for the GPUs. Does nothing where no device is named twice.
void prepare_shared_gpus(std::span<const Device> devices);

}  // namespace heddle

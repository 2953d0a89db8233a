// The shortest way onto a fabric: one function, called on every rank.
#pragma once

#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "fabric/fabric.h"

namespace heddle {

// If mpirun (`heddle launch`) started this process, it is one rank of the run, and `ranks` is ignored. Otherwise starts
// `ranks` ranks as threads of this process, on host memory ("shm", or "hierarchical", where groups of them stand for machines)
// or each on a GPU of its own ("nvlink"). Calls
// rank_main on each with its fabric and a stream of the fabric's device, and returns when all have returned. An
// exception of one rank ends the others' waits; the first is rethrown. Throws InputError for a fabric that this build
// does not have, or that needs processes.
void run_ranks(std::string_view fabric, int ranks, const FabricOptions& options,
               FunctionRef<void(Fabric&, Stream&)> rank_main);

// The same with ranks as threads, each on a GPU of this process by its index, which several may share (nvlink-ipc). Call
// prepare_shared_gpu (nvlink/nvlink_ranks.h) before anything asks CUDA for GPUs. Throws InputError in builds without
// CUDA.
void run_ranks_on_gpus(const std::vector<int>& gpus, const FabricOptions& options,
                       FunctionRef<void(Fabric&, Stream&)> rank_main);

}  // namespace heddle

// A model spread over ranks that are threads of this process (parallel/tensor_split.h): each rank's part of the weights,
// and what the ranks reach each other by.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "models/model.h"
#include "weights/model_source.h"

namespace heddle {

class Communicator;
class Fabric;

inline constexpr int kMaxRanks = 64;  // of one model

// Ranks wait for each other in every layer, and one may compute a long chunk of a prompt while the system runs another on
// its processor. A rank that has failed ends the waits at once; this limit is for one that hangs.
inline constexpr std::chrono::seconds kRankDeadline{60};

// One rank's. The model goes first, the fabric last.
struct RankPart {
  RankPart();
  RankPart(RankPart&&) noexcept;
  RankPart& operator=(RankPart&&) noexcept;
  ~RankPart();

  std::unique_ptr<Fabric> fabric;              // null with one rank
  std::unique_ptr<Communicator> communicator;  // likewise
  std::unique_ptr<Model> model;
};

using RankModels = std::vector<RankPart>;  // by rank, at least one

// A whole model, as its only rank.
RankModels one_rank(std::unique_ptr<Model> model);

// Loads each rank's part on a thread of its own; options.place is ignored. on_progress is called by one thread at a time
// with the bytes of all ranks. Throws as load_model and tensor_split do, before weights are read where it can; what one
// rank throws names it and ends the others' loading. Throws InputError for several ranks on a GPU, which is not there yet.
// `deadline`: of each wait for another rank.
RankModels load_ranks(const ModelSource& source, const LoadOptions& options, int ranks,
                      std::chrono::nanoseconds deadline = kRankDeadline);

// The same without weights, fabric and memory (models/registry.h, outline_model).
RankModels outline_ranks(const ModelSource& source, const LoadOptions& options, int ranks);

std::size_t weight_bytes(const RankModels& ranks);           // of all ranks
std::size_t weight_bytes_per_step(const RankModels& ranks);  // likewise

// What the caches of all ranks take with so many pages each.
std::size_t cache_bytes(const RankModels& ranks, int page_size, int num_pages);

}  // namespace heddle

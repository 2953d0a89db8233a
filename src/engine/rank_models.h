// A model spread over ranks that are threads of this process (parallel/tensor_split.h, parallel/context_attention.h): each
// rank's part of the weights, and what the ranks reach each other by.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/device.h"
#include "engine/rank_facts.h"
#include "engine/rank_world.h"
#include "models/model.h"
#include "weights/model_source.h"

namespace heddle {

inline constexpr int kMaxRanks = 64;  // of one model

// Ranks wait for each other in every layer, and one may compute a long chunk of a prompt while the system runs another on
// its processor. A rank that has failed ends the waits at once; this limit is for one that hangs.
inline constexpr std::chrono::seconds kRankDeadline{60};

struct RankOptions {
  std::chrono::nanoseconds deadline = kRankDeadline;  // of each wait for another rank
  StepLimits steps = {};                              // of the largest executor that the ranks will have
};

// One rank's.
struct RankPart {
  std::shared_ptr<RankWorld> world;  // null with one rank, and for outlines; goes last
  std::unique_ptr<Model> model;      // an outline of a rank that is another process
};

using RankModels = std::vector<RankPart>;  // by rank, at least one

// A whole model, as its only rank.
RankModels one_rank(std::unique_ptr<Model> model);

// Loads each rank's part on a thread of its own; options.place is ignored. Of the ranks options.context_ranks, a divisor of
// their number, have the same weights and divide the keys and values (RankGrid). on_progress is called by one thread at a time
// with the bytes of all ranks. Throws as load_model, tensor_split and RankWorld do, before weights are read where it can;
// what one rank throws names it and ends the others' loading. Before the ranks meet, dry runs of every rank say how much
// symmetric memory steps take; the fabric is made for the most.
RankModels load_ranks(const ModelSource& source, const LoadOptions& options, int ranks, const RankOptions& run = {});

// The same with rank i on devices[i]: GPUs of which several ranks may share one; options.device is ignored.
RankModels load_ranks(const ModelSource& source, const LoadOptions& options, std::span<const Device> devices,
                      const RankOptions& run = {});

// This process's part of a model whose ranks are processes, which `heddle launch` has started; the other parts are
// outlines. Collective. Before weights are read, all ranks compare `facts` (rank_facts.h) and the number of ranks; throws
// as require_equal_facts and otherwise as load_ranks, and soon after another rank is lost.
RankModels load_launched_rank(const ModelSource& source, const LoadOptions& options, const std::vector<RankFact>& facts,
                              const RankOptions& run = {});

// The same without weights, fabric and memory (models/registry.h, outline_model).
RankModels outline_ranks(const ModelSource& source, const LoadOptions& options, int ranks);

std::size_t weight_bytes(const RankModels& ranks);           // of all ranks
std::size_t weight_bytes_per_step(const RankModels& ranks);  // likewise

// SMs of a GPU that a step of rank `rank`, whose part this is, may hold at a time, at most `most` of them; 0: all.
int sms_of_step(const RankPart& part, int rank, int most);

// Memory that is free for each rank, whose weights are loaded: the least, where ranks that share a GPU divide it. On the CPU 0.
std::size_t available_bytes(const RankModels& ranks);

// What the caches of all ranks take with so many pages each.
std::size_t cache_bytes(const RankModels& ranks, int page_size, int num_pages);

}  // namespace heddle

// Which algorithm a collective runs with, by its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"

namespace heddle {

class TunedStore;

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, barrier };
inline constexpr int kNumCollectives = 6;
std::string_view name_of(Collective collective);  // "all_reduce"
std::optional<Collective> collective_named(std::string_view name);

enum class Algorithm : std::uint8_t {
  low_latency,  // packets pushed into the peers' inboxes and polled there; all_reduce: one-shot
  two_phase,    // all_reduce only: packets, first to a piece's owner, then from it (two-shot)
  direct,       // loads and stores of peer memory between barriers
  pipelined,    // chunks with a flag each, no barrier: all_reduce in symmetric memory; broadcast on the CPU
  vendor,       // NCCL
  put           // one-sided operations of the fabric, for fabrics without peer addresses
};
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int blocks = 1;     // thread blocks on a GPU, at most kMaxBlocks; each takes an SM
  int threads = 512;  // per block on a GPU, at most 512; pipelined has a fixed number of its own

  friend bool operator==(const Choice&, const Choice&) = default;
};

// One line of a table: the choice for sizes above the line before, up to and including up_to_bytes.
struct CutOff {
  std::size_t up_to_bytes = std::numeric_limits<std::size_t>::max();
  Choice choice;

  friend bool operator==(const CutOff&, const CutOff&) = default;
};
using CutOffs = std::vector<CutOff>;  // by size; the last line has no limit

// `bytes` is the size of the larger of a rank's two buffers, here and below.
const Choice& choose(std::span<const CutOff> table, std::size_t bytes);

// Time of a call on H200s over NVLink, by a model fitted to measurements of two and four of them
// (machine/collective_cost.h); other team sizes are extrapolated. Empty where no model was fitted: broadcast, barrier,
// NCCL, and direct all_reduce.
std::optional<double> predicted_seconds(Collective collective, Algorithm algorithm, int team_size, std::size_t bytes);

// The table without measurements of this machine; `fabric` is the fabric's name.
CutOffs default_cut_offs(Collective collective, std::string_view fabric, int team_size);

// The table that `heddle bench collective --tune` left in the machine's tuned store. Empty if there is none, or if it
// is not a valid table.
std::optional<CutOffs> tuned_cut_offs(const TunedStore& store, Collective collective, std::string_view fabric,
                                      int team_size);
void put_tuned_cut_offs(TunedStore& store, Collective collective, std::string_view fabric, int team_size,
                        const CutOffs& table);

}  // namespace heddle

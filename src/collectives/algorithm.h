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
  low_latency,  // push into the others' inboxes, poll the own; all_reduce: everything to everybody (one shot)
  two_phase,    // all_reduce only: the same twice, by way of a piece's owner
  direct,       // loads and stores between barriers
  pipelined,    // chunks with a flag each, no barrier: all_reduce in symmetric memory; broadcast on the CPU
  vendor,       // NCCL's own
  put           // one-sided operations of the fabric: where there are no peer addresses
};
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  int blocks = 1;     // on a GPU, at most kMaxBlocks; each takes a multiprocessor
  int threads = 512;  // of a block, there; at most 512 (pipelined has its own number)

  friend bool operator==(const Choice&, const Choice&) = default;
};

// From the last line's size on, up to and with this one's.
struct CutOff {
  std::size_t up_to_bytes = std::numeric_limits<std::size_t>::max();
  Choice choice;

  friend bool operator==(const CutOff&, const CutOff&) = default;
};
using CutOffs = std::vector<CutOff>;  // by size; the last has no limit

// "Bytes" is the size of the larger of a rank's two buffers.
const Choice& choose(std::span<const CutOff> table, std::size_t bytes);

// What a call takes on H200s that NVLink joins, by what two and four of them took (machine/collective_cost.h): for
// other numbers a prediction. Nothing for what nobody fitted: broadcast, barrier, NCCL's and direct all_reduce.
std::optional<double> predicted_seconds(Collective collective, Algorithm algorithm, int team_size, std::size_t bytes);

// What holds until somebody has measured; `fabric` is its name.
CutOffs default_cut_offs(Collective collective, std::string_view fabric, int team_size);

// As `heddle bench collective --tune` leaves them in the store of the machine's tuned values. Nothing where there are
// none, or where they are no table.
std::optional<CutOffs> tuned_cut_offs(const TunedStore& store, Collective collective, std::string_view fabric,
                                      int team_size);
void put_tuned_cut_offs(TunedStore& store, Collective collective, std::string_view fabric, int team_size,
                        const CutOffs& table);

}  // namespace heddle

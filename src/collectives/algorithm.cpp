#include "collectives/algorithm.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "collectives/collective_memory.h"
#include "machine/collective_cost.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

constexpr std::array<std::string_view, kNumCollectives> kCollectives{"all_reduce", "reduce_scatter", "all_gather",
                                                                     "all_to_all", "broadcast",      "barrier"};
constexpr std::array<std::string_view, 6> kAlgorithms{"low_latency", "two_phase", "direct",
                                                      "pipelined",   "vendor",    "put"};

template <class Enum, std::size_t N>
std::optional<Enum> named(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::string key(Collective collective, std::string_view fabric, int team_size) {
  return fmt::format("collective/{}/{}/{}", fabric, name_of(collective), team_size);
}

constexpr std::size_t KiB(std::size_t n) {
  return n << 10;
}
constexpr std::size_t MiB(std::size_t n) {
  return n << 20;
}

// On the CPU, polling packets moves a cache line back and forth while the other core still writes it (360 ns per packet
// on two cores of an AMD Milan), whereas two barriers and plain copies take 2 us. So low_latency on the CPU serves only
// as the twin that tests the kernels.
CutOffs cut_offs_on_shm(Collective collective) {
  return {{.choice = {collective == Collective::broadcast ? Algorithm::pipelined : Algorithm::direct}}};
}

constexpr CutOff low_latency_to(std::size_t bytes, int blocks, int threads) {
  return {bytes, {Algorithm::low_latency, blocks, threads}};
}

// Measured on two H200s (bench/results/h200-nvlink-2-ranks-*.json): one packet per lane while latency dominates, then
// as many lanes as fill the link in both directions. NCCL is faster for broadcast and all_to_all.
CutOffs cut_offs_of_two_gpus(Collective collective) {
  const CutOff direct{.choice = {Algorithm::direct, 64}}, direct_to_32_mib{MiB(32), {Algorithm::direct, 64}},
      pipelined{.choice = {Algorithm::pipelined, kMaxBlocks}}, vendor{.choice = {Algorithm::vendor}};
  const CutOff exchange[] = {low_latency_to(KiB(8), 1, 128), low_latency_to(KiB(32), 4, 128),
                             low_latency_to(KiB(128), 16, 128), low_latency_to(KiB(512), 64, 128),
                             low_latency_to(MiB(8), 64, 512)};
  CutOffs table(std::begin(exchange), std::end(exchange));
  switch (collective) {
    case Collective::barrier:
      return {{.choice = {Algorithm::direct, 1, 128}}};
    case Collective::all_reduce:
      return {low_latency_to(KiB(2), 1, 128),
              low_latency_to(KiB(8), 2, 128),
              low_latency_to(KiB(32), 8, 128),
              low_latency_to(KiB(128), 16, 256),
              low_latency_to(KiB(512), 64, 256),
              {MiB(8), {Algorithm::two_phase, 64}},
              pipelined};
    case Collective::reduce_scatter:
    case Collective::all_gather:
      table.push_back(direct);
      return table;
    case Collective::all_to_all:
    case Collective::broadcast:
      table.insert(table.end(), {direct_to_32_mib, vendor});
      return table;
  }
  return table;
}

// Measured on four H200s (docs/notes/collectives.md), and used for other team sizes, too. One packet per
// lane and peer while latency dominates; NCCL for broadcasts that are bound by bandwidth.
CutOffs cut_offs_of_four_gpus(Collective collective) {
  const CutOff direct{.choice = {Algorithm::direct, 64}}, vendor{.choice = {Algorithm::vendor}};
  switch (collective) {
    case Collective::barrier:
      return {{.choice = {Algorithm::direct, 1, 128}}};
    case Collective::all_reduce:
      return {low_latency_to(KiB(2), 1, 512),       low_latency_to(KiB(8), 2, 128),
              low_latency_to(KiB(32), 8, 128),      low_latency_to(KiB(128), 32, 128),
              low_latency_to(KiB(512), 64, 256),    {MiB(2), {Algorithm::two_phase, 64, 256}},
              {MiB(8), {Algorithm::two_phase, 64}}, {.choice = {Algorithm::pipelined, kMaxBlocks}}};
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return {low_latency_to(KiB(8), 1, 128),
              low_latency_to(KiB(32), 2, 128),
              low_latency_to(KiB(128), 8, 128),
              low_latency_to(KiB(512), 32, 128),
              low_latency_to(MiB(2), 64, 256),
              low_latency_to(MiB(8), 64, 512),
              direct};
    case Collective::broadcast:
      return {low_latency_to(KiB(2), 1, 512),
              low_latency_to(KiB(8), 2, 128),
              low_latency_to(KiB(32), 8, 128),
              low_latency_to(KiB(128), 32, 128),
              low_latency_to(MiB(2), 64, 256),
              {MiB(8), {Algorithm::direct, 64}},
              vendor};
  }
  return {vendor};
}

CutOffs cut_offs_on_nvlink(Collective collective, int team_size) {
  return team_size <= 2 ? cut_offs_of_two_gpus(collective) : cut_offs_of_four_gpus(collective);
}

std::optional<CollectiveFit> fit_of(Collective collective, Algorithm algorithm) {
  const auto either = [&](const CollectiveFit& pushed, const CollectiveFit& direct) -> std::optional<CollectiveFit> {
    if (algorithm == Algorithm::low_latency) return pushed;
    if (algorithm == Algorithm::direct) return direct;
    return std::nullopt;
  };
  switch (collective) {
    case Collective::all_reduce:
      if (algorithm == Algorithm::low_latency) return h200::kOneShotAllReduce;
      if (algorithm == Algorithm::two_phase) return h200::kTwoPhaseAllReduce;
      if (algorithm == Algorithm::pipelined) return h200::kPipelinedAllReduce;
      return std::nullopt;
    case Collective::reduce_scatter:
      return either(h200::kPushedReduceScatter, h200::kDirectReduceScatter);
    case Collective::all_gather:
      return either(h200::kPushedAllGather, h200::kDirectAllGather);
    case Collective::all_to_all:
      return either(h200::kPushedAllToAll, h200::kDirectAllToAll);
    case Collective::broadcast:
    case Collective::barrier:
      break;
  }
  return std::nullopt;
}

std::optional<CutOff> cut_off_of(const nlohmann::json& row) {
  if (!row.is_object() || !row.contains("algorithm") || !row["algorithm"].is_string()) return std::nullopt;
  const auto algorithm = algorithm_named(row["algorithm"].get<std::string>());
  const auto number = [&](const char* name, std::uint64_t otherwise) {
    return row.contains(name) && row[name].is_number_unsigned() ? row[name].get<std::uint64_t>() : otherwise;
  };
  if (row.contains("up_to_bytes") && !row["up_to_bytes"].is_number_unsigned()) return std::nullopt;
  const std::uint64_t blocks = number("blocks", 0), threads = number("threads", 0);
  if (!algorithm || blocks < 1 || blocks > kMaxBlocks || threads < 32 || threads > 512 || threads % 32 != 0)
    return std::nullopt;
  return CutOff{number("up_to_bytes", std::numeric_limits<std::size_t>::max()),
                {*algorithm, static_cast<int>(blocks), static_cast<int>(threads)}};
}

}  // namespace

std::string_view name_of(Collective collective) {
  return kCollectives.at(static_cast<std::size_t>(collective));
}

std::optional<Collective> collective_named(std::string_view name) {
  return named<Collective>(kCollectives, name);
}

std::string_view name_of(Algorithm algorithm) {
  return kAlgorithms.at(static_cast<std::size_t>(algorithm));
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  return named<Algorithm>(kAlgorithms, name);
}

const Choice& choose(std::span<const CutOff> table, std::size_t bytes) {
  require(!table.empty(), "a table of cut-offs needs at least one line");
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const CutOff& one) { return bytes <= one.up_to_bytes; });
  return found == table.end() ? table.back().choice : found->choice;
}

std::optional<double> predicted_seconds(Collective collective, Algorithm algorithm, int team_size, std::size_t bytes) {
  const auto fit = fit_of(collective, algorithm);
  if (!fit) return std::nullopt;
  const auto size = static_cast<double>(bytes);
  const bool one_shot = collective == Collective::all_reduce && algorithm == Algorithm::low_latency;
  return fit->seconds(team_size, one_shot                               ? one_shot_traffic(team_size, size)
                                 : collective == Collective::all_reduce ? all_reduce_traffic(team_size, size)
                                                                        : exchange_traffic(team_size, size));
}

CutOffs default_cut_offs(Collective collective, std::string_view fabric, int team_size) {
  if (fabric == "nvlink") return cut_offs_on_nvlink(collective, team_size);
  return cut_offs_on_shm(collective);
}

std::optional<CutOffs> tuned_cut_offs(const TunedStore& store, Collective collective, std::string_view fabric,
                                      int team_size) {
  const auto value = store.value(key(collective, fabric, team_size));
  if (!value || !value->is_array() || value->empty()) return std::nullopt;
  CutOffs table;
  for (const nlohmann::json& row : *value) {
    const auto line = cut_off_of(row);
    if (line && line->choice.algorithm == Algorithm::put && fabric.starts_with("nvlink")) return std::nullopt;
    if (!line || (!table.empty() && line->up_to_bytes <= table.back().up_to_bytes)) return std::nullopt;
    table.push_back(*line);
  }
  if (table.back().up_to_bytes != std::numeric_limits<std::size_t>::max()) return std::nullopt;
  return table;
}

void put_tuned_cut_offs(TunedStore& store, Collective collective, std::string_view fabric, int team_size,
                        const CutOffs& table) {
  nlohmann::json rows = nlohmann::json::array();
  for (const CutOff& line : table) {
    nlohmann::json row{{"algorithm", name_of(line.choice.algorithm)},
                       {"blocks", static_cast<std::uint64_t>(line.choice.blocks)},
                       {"threads", static_cast<std::uint64_t>(line.choice.threads)}};
    if (line.up_to_bytes != std::numeric_limits<std::size_t>::max()) row["up_to_bytes"] = line.up_to_bytes;
    rows.push_back(std::move(row));
  }
  store.put(key(collective, fabric, team_size), rows);
}

}  // namespace heddle

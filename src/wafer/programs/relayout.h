// The transition from prefill to decode (WaferLLM, section 4.4): every weight of a layer, the prompt's keys and values, and
// the last token's hidden state move from the core that has them in prefill to the core that has them in decode. Decode
// takes values by these very lists.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "wafer/cost/plmr.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/cost/wafer_regions.h"
#include "wafer/programs/kv_rows.h"
#include "wafer/programs/partition.h"

namespace heddle {

struct Relayout {
  WaferMesh prefill;
  int prefill_regions = 1;
  std::optional<CoreRectangle> spill = {};  // where prefill put keys and values (WaferFit::spill)
  WaferMesh decode;
  int decode_regions = 1;
};

// Indices of one axis of a tensor that move from place `from` along an axis of prefill's mesh to core `to` along an axis
// of decode's.
struct IndexMove {
  int from = 0, to = 0;
  std::vector<int> indices;
};

// All indices of an axis, each in one move. before, after: which row, or column, of its core's tile an index is.
struct AxisMoves {
  std::vector<IndexMove> moves;
  std::vector<int> before, after;
};

// Of a weight. aligned: block (r, c) lies at place (r - c, c) in prefill, as MeshGEMM wants it. turned: in decode, rows lie
// along x and columns along y; otherwise rows lie along y.
enum class Lies : std::uint8_t { aligned, aligned_and_turned };
struct WeightMoves {
  const AxisMoves &rows, &columns;
  Lies lies = Lies::aligned;

  // The row of places in prefill that has a block; its column is column.from.
  static int place_y(const IndexMove& row, const IndexMove& column, int places) {
    return (row.from - column.from % places + places) % places;
  }
};

// The moves of one layer; all layers are alike. `rows`: the prompt's tokens in decode.
struct LayerMoves {
  AxisMoves tokens;                        // from places along y to rows of cores; `after` is empty
  AxisMoves keys, queries, hidden, inner;  // features
  int places = 0;                          // along each axis of prefill's mesh

  LayerMoves(const WaferModel& model, WaferMesh prefill, WaferMesh decode, const KvRows& rows);

  // Q, K, V, O, gate, up, down. Refers to this.
  std::array<WeightMoves, 7> weights() const {
    using enum Lies;
    return {{{hidden, queries, aligned},
             {hidden, keys, aligned},
             {hidden, keys, aligned},
             {queries, hidden, aligned_and_turned},
             {hidden, inner, aligned},
             {hidden, inner, aligned},
             {inner, hidden, aligned_and_turned}}};
  }
};

struct RelayoutCost {
  double cycles = 0;
  double hops_and_words = 0;  // of them, without stages
  Basis basis = Basis::simulated;
  std::int64_t values = 0;  // that moved
};

// Executes all moves of all layers: one message a block and pair of regions, all at once, relayed along x and then along y
// (mesh/relay_mesh.h). Regions lie as region_cores() says. With more than `most_hops` hops in all, their words are counted on
// every link instead (mesh/load_mesh.h), and the basis says "counted".
inline constexpr std::int64_t kMostRelayoutHops = 4'000'000;
RelayoutCost run_relayout(const PlmrDevice& device, const WaferModel& model, const Relayout& layout, const KvRows& rows,
                          std::int64_t most_hops = kMostRelayoutHops);

}  // namespace heddle

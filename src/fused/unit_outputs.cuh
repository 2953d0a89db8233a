// Outputs of units that share a partial sum: whichever block comes last adds them, in the order of the units, so the bits
// do not depend on who that is. No atomics on floats.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/atomics.h"
#include "fused/decode_block_plan.h"

namespace heddle {

// In global memory. The count is of units whose blocks of a rank are there: [partials][cluster].
struct UnitOutputs {
  float* outputs;           // [units][tokens][hidden]
  std::uint32_t* arrivals;  // zero between calls
};

// All lanes of the block. compute(to) leaves the unit's output, of this block's rows, at `to` [tokens][hidden]; `arrived`
// is in shared memory. Shape: DecodeBlockShape or LatentBlockShape.
template <class Work, class Team, class Shape, class Compute>
HEDDLE_HOST_DEVICE void put_unit_output(const Team& team, const Shape& shape, int unit, const UnitOutputs& scratch,
                                        float* partials, std::uint32_t& arrived, const Compute& compute) {
  const int partial = shape.partial_of(unit);
  const DecodeRange units = shape.units_of(partial), rows = shape.output_rows_of(team.block());
  const std::int64_t each = std::int64_t{shape.tokens} * shape.hidden;
  float* const to = partials + partial * each;
  if (units.count() == 1) return compute(to);
  compute(scratch.outputs + unit * each);
  team.sync();
  std::uint32_t* const arrivals = scratch.arrivals + partial * team.blocks() + team.block();
  if (team.lane() == 0) arrived = atomic_add<Order::acq_rel, Scope::gpu>(arrivals, 1);
  team.sync();
  if (static_cast<int>(arrived) + 1 != units.count()) return;
  for (int i = team.lane(); i < shape.tokens * rows.count(); i += team.lanes()) {
    const int at = i / rows.count() * shape.hidden + rows.begin + i % rows.count();
    float sum = 0;
    for (int of = units.begin; of < units.end; ++of) sum += Work::load_shared(scratch.outputs + of * each + at);
    to[at] = sum;
  }
  if (team.lane() == 0) atomic_store<Order::relaxed, Scope::gpu>(arrivals, 0);
}

}  // namespace heddle

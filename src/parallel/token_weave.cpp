#include "parallel/token_weave.h"

#include "base/error.h"

namespace heddle {

//   computation   | block 0 of a | block 0 of b | block 1 of a | block 1 of b | ...
//   transfers           | norm 0 of b | norm 1 of a | norm 1 of b | norm 2 of a | ...
void run_interleaved(Strategy& strategy, const Blocks& blocks, std::span<const PartRows> parts,
                     const Execution& execution) {
  require(execution.transfers != nullptr && parts.size() == kMostParts,
          "token weave: {} parts, expected two on two lanes", parts.size());
  TransferLane& transfers = *execution.transfers;
  const Lane lane = transfers.lane();
  for (int part = 0; part < kMostParts; ++part) transfers.computed(part, execution.compute);
  for (int block = 0; block < blocks.count; ++block)
    for (int part = 0; part < kMostParts; ++part) {
      const PartRows& rows = parts[static_cast<std::size_t>(part)];
      transfers.await_computed(part);
      strategy.normalize(rows.before(block), blocks.norm(block), rows.normalized, lane);
      transfers.hand_back(part, execution.compute);
      blocks.compute(block, part);
      transfers.computed(part, execution.compute);  // before the other part's block is enqueued
    }
}

}  // namespace heddle

#include "cli/bench/block_ways.h"

#include "base/checked.h"

namespace heddle {

BlockSequences block_sequences(Operands& operands, int batch, int context) {
  const int pages_of_sequence = ceil_div(context, kBlockPageSize), pages = pages_of_sequence * batch;
  std::vector<std::int32_t> query_start, context_len, table, positions;
  for (int i = 0; i <= batch; ++i) query_start.push_back(i);
  for (int i = 0; i < batch; ++i) context_len.push_back(context), positions.push_back(context - 1);
  for (int i = 0; i < pages; ++i) table.push_back((i * 7919 + 13) % pages);  // a permutation: 7919 is a large prime
  return {.sequences = {.query_start = operands.array(query_start),
                        .context_len = operands.array(context_len),
                        .page_table = operands.array(table),
                        .num_sequences = batch,
                        .page_table_stride = pages_of_sequence,
                        .max_query_len = 1},
          .positions = operands.array(positions),
          .pages = pages};
}

}  // namespace heddle

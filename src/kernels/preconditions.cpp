#include "kernels/preconditions.h"

#include "base/error.h"

namespace heddle {

ActivationDTypes activations_on(const Stream& stream, ActivationDTypes on_cpu) {
  return stream.device().kind == DeviceKind::cuda ? ActivationDTypes::with_16_bit : on_cpu;
}

void require_activation(const Tensor& tensor, std::int64_t rows, std::int64_t columns, std::string_view op,
                        std::string_view operand, ActivationDTypes dtypes) {
  require(tensor.rows == rows && tensor.columns == columns, "{}: {} is [{}, {}], expected [{}, {}]", op, operand,
          tensor.rows, tensor.columns, rows, columns);
  require(rows >= 0 && columns > 0, "{}: {} is [{}, {}], which has a size below 1", op, operand, rows, columns);
  const bool takes_bfloat16 = dtypes != ActivationDTypes::float32,
             takes_float16 = dtypes == ActivationDTypes::with_16_bit;
  require(tensor.dtype == DType::float32 || (takes_bfloat16 && tensor.dtype == DType::bfloat16) ||
              (takes_float16 && tensor.dtype == DType::float16),
          "{}: {} is {}, expected float32{}", op, operand, name_of(tensor.dtype),
          takes_float16    ? ", bfloat16 or float16"
          : takes_bfloat16 ? " or bfloat16 on the CPU"
                           : " on the CPU");
  require(tensor.row_stride >= columns, "{}: {} has row_stride {}, less than its {} columns", op, operand,
          tensor.row_stride, columns);
  require(tensor.data != nullptr || rows == 0, "{}: {} is null", op, operand);
}

void require_weight(const Weight& weight, std::string_view op) {
  require(weight.out_features > 0 && weight.in_features > 0, "{}: the weight is [{}, {}], which has a size below 1", op,
          weight.out_features, weight.in_features);
  std::int64_t rows = 0;
  for (const WeightBlock& block : weight.blocks) {
    require(block.num_rows >= 0, "{}: a block of the weight has {} rows", op, block.num_rows);
    require(block.data != nullptr || block.num_rows == 0, "{}: a block of the weight is null and has {} rows", op,
            block.num_rows);
    rows += block.num_rows;
  }
  require(rows == weight.out_features, "{}: the blocks of the weight have {} rows, out_features is {}", op, rows,
          weight.out_features);
}

void require_one_run(const Weight& weight, std::string_view op) {
  const auto* end = static_cast<const std::byte*>(weight.blocks[0].data);
  for (const WeightBlock& block : weight.blocks) {
    if (block.num_rows == 0) continue;
    require(end == nullptr || block.data == end, "{}: the blocks of a weight on a GPU must lie back to back", op);
    end = static_cast<const std::byte*>(block.data) + static_cast<std::size_t>(block.num_rows) * weight.row_bytes();
  }
}

void require_array(const void* data, std::int64_t count, std::string_view op, std::string_view operand) {
  require(data != nullptr || count == 0, "{}: {} is null", op, operand);
}

void require_paged_kv(const PagedKv& kv, const PagedSequences& sequences, std::int64_t num_tokens,
                      std::string_view op) {
  require(kv.num_kv_heads > 0 && kv.page_size > 0 && kv.head_dim > 0,
          "{}: num_kv_heads {}, page_size {} and head_dim {} must be above 0", op, kv.num_kv_heads, kv.page_size,
          kv.head_dim);
  require(kv.shard.rank >= 0 && kv.shard.rank < kv.shard.ranks, "{}: the cache of rank {} of {}", op, kv.shard.rank,
          kv.shard.ranks);
  require(sequences.num_sequences >= 0 && sequences.page_table_stride >= 0,
          "{}: num_sequences {} and page_table_stride {} must not be negative", op, sequences.num_sequences,
          sequences.page_table_stride);
  require(num_tokens == 0 || sequences.num_sequences > 0, "{}: {} tokens, but no sequences", op, num_tokens);
  require(num_tokens == 0 || sequences.page_table_stride > 0, "{}: {} tokens, but page_table_stride is 0", op,
          num_tokens);
  require_array(kv.keys, num_tokens, op, "kv.keys");
  require_array(kv.values, num_tokens, op, "kv.values");
  require_array(sequences.query_start, num_tokens, op, "query_start");
  require_array(sequences.context_len, num_tokens, op, "context_len");
  require_array(sequences.page_table, num_tokens, op, "page_table");
}

}  // namespace heddle

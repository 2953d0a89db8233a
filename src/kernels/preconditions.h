// Checks that operators share. Each throws InvalidArgument with a message that names the operator and the operand.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/stream.h"
#include "base/tensor.h"
#include "base/weight.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

enum class ActivationDTypes { float32, with_bfloat16, with_16_bit };

// The dtypes that an operator takes on this stream: on the CPU `on_cpu`, on a GPU float32, bfloat16 and float16.
ActivationDTypes activations_on(const Stream& stream, ActivationDTypes on_cpu);

// `tensor` is [rows, columns] of an accepted dtype, columns > 0, row_stride >= columns, and not null unless it has no
// rows.
void require_activation(const Tensor& tensor, std::int64_t rows, std::int64_t columns, std::string_view op,
                        std::string_view operand, ActivationDTypes dtypes = ActivationDTypes::float32);

// out_features and in_features > 0; the blocks hold out_features rows and are not null where they have rows.
void require_weight(const Weight& weight, std::string_view op);

// The blocks are contiguous: a GPU kernel reads all rows through one pointer.
void require_one_run(const Weight& weight, std::string_view op);

// Not null, unless it has no elements.
void require_array(const void* data, std::int64_t count, std::string_view op, std::string_view operand);

// Sizes > 0, pointers not null unless there are no tokens; the cache of a rank, if there are several.
void require_paged_kv(const PagedKv& kv, const PagedSequences& sequences, std::int64_t num_tokens, std::string_view op);

}  // namespace heddle

// Where the results of the decode kernel go. It is a template over an output, which has
//   row(params, split, row)           a place whose store(d, sums) takes elements d to d + 3 of a row of the split's item
//   may_store(params, split)          comes before a split is processed, from all its consumer warps; false: rows that
//                                     the block has of this item are not stored
//   stored(group, params, split, n)   the group has stored n groups of four elements of the item, once all its lanes
//                                     have called this
//   finish(params)                    comes last, from all consumer warps of every block
#pragma once

#include <cmath>
#include <cstdint>

#include "base/alignment.h"
#include "base/tensor.h"
#include "kernels/attention/attention_decode_sm90.cuh"
#include "kernels/attention/attention_decode_sums_sm90.cuh"
#include "kernels/attention/attention_sm90_rows.cuh"

namespace heddle::sm90 {

// What needs no more than rows.
struct DecodeOutput {
  __device__ bool may_store(const DecodeParams& /*params*/, const DecodeSplit& /*split*/) const { return true; }
  template <class Group>
  __device__ void stored(const Group& /*group*/, const DecodeParams& /*params*/, const DecodeSplit& /*split*/,
                         int /*fours*/) const {}
  __device__ void finish(const DecodeParams& /*params*/) const {}
};

// y: weighted averages of values.
struct RowsOfY : DecodeOutput {
  struct Row {
    void* y;
    std::int64_t first;
    DType dtype;

    __device__ void store(int d, const MergedRow& sums) const { store_four(y, first + d, dtype, sums.average()); }
  };

  __device__ Row row(const DecodeParams& params, const DecodeSplit& split, int row) const {
    const Tensor& y = params.attention.y;
    return {y.data, element_of(y, params, split, row, 0), y.dtype};
  }
};

// Where (o, m, l) of a query head lie.
struct SumsOfHead {
  float* o;
  float* m;
  float* l;

  static __device__ SumsOfHead in(float* unit, int group, int head, int head_dim) {
    float* const m = unit + group * head_dim + head;
    return {unit + head * head_dim, m, m + group};
  }

  __device__ void store(int d, const MergedRow& sums) const {
    if (is_aligned(o + d)) {
      *reinterpret_cast<float4*>(o + d) = sums.o;
    } else {
      *reinterpret_cast<float2*>(o + d) = {sums.o.x, sums.o.y};
      *reinterpret_cast<float2*>(o + d + 2) = {sums.o.z, sums.o.w};
    }
    if (d != 0) return;
    *m = sums.largest * static_cast<float>(M_LN2);  // the kernel's weights are powers of two
    *l = sums.sum;
  }
};

// Units of (o, m, l), as AttentionSums says.
struct SumsOfUnits : DecodeOutput {
  // Whether they have all columns and may lie there: a group of 1 has units of 8 bytes more than a multiple of 16.
  static bool take(const AttentionParams& attention) {
    const AttentionSums& sums = attention.sums;
    return attention.sum_columns() == attention.kv.head_dim && is_aligned(sums.first, sizeof(float2)) &&
           sums.bytes_apart % sizeof(float2) == 0;
  }

  static __device__ SumsOfHead row(const DecodeParams& params, const DecodeSplit& split, int row) {
    const PagedKv& kv = params.attention.kv;
    const ItemRow at(params, split, row);
    float* const unit = params.attention.sums.unit(std::int64_t{at.token} * kv.num_kv_heads + split.kv_head);
    return SumsOfHead::in(unit, params.group, at.head, kv.head_dim);
  }
};

}  // namespace heddle::sm90

// Tensor parallelism: which part of a model each rank owns (Shoeybi et al., 2019, "Megatron-LM", section 3). Queries,
// keys, values, gate and up are split by rows, which are heads and features; output and down by the columns that take
// those heads and features, so that each rank's product is a partial sum. Embedding and logits are split over the
// vocabulary. Norms are on every rank.
#pragma once

#include <cstdint>

#include "weights/slice.h"

namespace heddle {

// What is divided.
struct SplitSizes {
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  std::int64_t intermediate = 0;
  std::int64_t vocab_size = 0;
};

// The part of one rank. All ranks' slices of heads, intermediate features and vocabulary follow each other and cover
// everything once. KV heads do so, too, up to as many ranks as there are KV heads; with more ranks several hold the same
// KV head, each with some of the query heads that use it.
struct TensorSplit {
  int rank = 0;
  int ranks = 1;
  Slice heads;
  Slice kv_heads;
  Slice intermediate;
  Slice vocabulary;
  bool equal_heads = true;  // whether every rank has as many heads, and as many KV heads

  int num_heads() const { return static_cast<int>(heads.count); }
  int num_kv_heads() const { return static_cast<int>(kv_heads.count); }

  // Whether this rank adds the bias of what the ranks' partial sums add up to: one rank does.
  bool adds_biases_of_sums() const { return rank == 0; }
};

// Throws InputError where a rank would be without a head, without features or without tokens: it says how many ranks are
// possible.
TensorSplit tensor_split(const SplitSizes& sizes, int rank, int ranks);

// Part `index` of `parts` of `count` elements: the first parts are larger by one where it does not divide.
Slice even_slice(std::int64_t count, int index, int parts);

}  // namespace heddle

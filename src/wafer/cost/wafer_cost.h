// What programs cost on a PLMR device: closed forms of WaferLLM's GEMMs (section 5), GEMVs (section 6), of a layer of
// prefill and decode (section 4) and of the KV cache's capacity. docs/notes/wafer.md has the fit of their constants.
//
// Symbols: P cores a side; a tile of A is Mt x Kt, of B Kt x Nt, each ceil(size / P) (in prefill's layers, cycles take
// the device's tile_rounding between the exact size and that: the paper's system deals tiles out, Heddle's programs
// pad); words are 4 bytes, two fp16 values (all formulas take the device's link width instead); alpha a hop, beta a
// routing stage, r the ramps; e, ck, cv, cw the cycles of a multiply-accumulate, of a call in a GEMM, of a slice of a
// GEMV, of an element-wise value. Units: cycles, bytes.
//
// Every function throws InvalidArgument on sizes < 1 and InputError on a mesh with a side below 3 or larger than the
// device, and where memory or routes of a core do not suffice: the message names phase, mesh, core, need and budget,
// and the smallest square mesh of the device on which memory would do, or the largest K that the routes allow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wafer/cost/plmr.h"

namespace heddle {

inline constexpr double kValueBytes = 2;  // fp16

// width: cores along x, over which columns are cut; height: along y.
struct WaferMesh {
  int width = 0, height = 0;
};

struct WaferModel {
  int num_layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int experts = 0;              // of a layer, `intermediate` wide each; 0: one feed-forward for all tokens
  int experts_per_token = 0;    // of those
  bool tied_embedding = false;  // the logits' weights are the embedding
};

// How a step of all cores begins. dataflow: a core goes on as soon as its own operands are there. rendezvous: two
// buffers, of which one is sent again only when the receiver has taken it. barrier: all cores wait for the last one.
enum class WaferSync : std::uint8_t { dataflow, rendezvous, barrier };

enum class WaferGemm : std::uint8_t { mesh_gemm, gemm_t, summa, cannon, all_gather };

enum class WaferAllReduce : std::uint8_t { k_tree, pipeline, ring };

struct WaferCost {
  struct Part {
    std::string name;
    double cycles;
  };
  std::vector<Part> breakdown;
  double memory_bytes = 0;    // of the fullest core
  int routes = 0;             // of the busiest core
  double resident_bytes = 0;  // of memory_bytes, what stays for the next token: a layer's weights and KV cache
  double buffer_bytes = 0;    // of memory_bytes, a prefill layer's largest product's tiles

  double cycles() const;                       // the sum of the breakdown
  double cycles(std::string_view part) const;  // of the part of that name; 0 where there is none
};

// Regions of experts: bands of `height` rows of the mesh, which work at a time; expert e in band e % count, `rounds` of
// them one after the other. Three rows at least, and, where the mesh's width has such a divisor, a height that divides
// it: the places of a band (5.4) are no more than the width then. Throws InputError on a mesh with a side below 3.
struct ExpertBands {
  int count = 0, height = 0, rounds = 0;
};
ExpertBands expert_bands(WaferMesh mesh, int experts);

// fp16, of all layers, without embedding and logits; and of one token's keys and values.
double wafer_weight_bytes(const WaferModel&);
double wafer_kv_bytes(const WaferModel&);

struct GemmSize {
  std::int64_t m = 0, k = 0, n = 0;  // C [m, n] = A [m, k] B [k, n]
};

// fp16. On a mesh that is not square, P is the least common multiple of its sides (5.4): a core then holds the tiles of
// (P/width) (P/height) logical ones. With C = ck (Kt + 2) + e Kt Mt Nt (calls: Kt slices, two transfers), a and b the
// words of a tile of A and of B, c of C, W = max(a, b), S the longer side, and L(cores), Cannon's long way: 0 in
// dataflow, cores alpha / 2 + r with rendezvous (every second step is short), (cores - 1) alpha + r with barriers:
//
//   mesh_gemm   P max(C, W + 2 alpha + r) + alignment of A: P/2 (a + 2 alpha + r)        hops are 2, whatever the sync
//   gemm_t      C = A B^T. A sum goes through X = width (alpha + beta); with D = max(C, b + 2 alpha + r, c + beta + r):
//               P D + X + 2 max(0, X - D): at the end, and where a sum's root has moved across the line; with barriers
//               P max(D, (D + X + c) / 2) + min(D, X): of two buffers each waits for its sum
//   cannon      P max(C, W + alpha + r, W + L(S)) + alignment: P/2 (a + max(alpha + r, L(width))); in dataflow S alpha
//               once
//   summa       P (C + W + r + beta) + 2 (width + height) alpha in dataflow; else P (C + W + r + beta + 3/4 S alpha):
//               one buffer, so that a root waits for its line. One beta a step: what is relayed was set up before, and
//               passes on; with the (alpha + beta) S a step of the paper's 5.1 it would be ten times slower than its
//               figure 9
//   all_gather  (P - 1) (W + alpha + beta) + P C
//
// tests/wafer/mesh/timing_test.cpp holds them to the programs on simulated cores, in all three synchronisations.
//
// Memory: all_gather (P + 1) (A + B) + C, where A lives and all of its row; gemm_t A, two of B, three of C's size (its
// partial sums have two); the others two tiles of A, two of B, one of C. Routes: of an axis three (one out, one in, one
// that passes) where tiles shift, two where they are relayed, as SUMMA's and all-gather's are: the paper's N routes a
// core exceed any device.
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferGemm, WaferSync = WaferSync::dataflow);

struct AllReduceOptions {
  WaferAllReduce method = WaferAllReduce::k_tree;
  int phases = 2;  // K of the K-tree
  WaferSync sync = WaferSync::dataflow;
};

// All-reduce of n fp16 values among `line` >= 2 cores in a line. With groups of g, g^K >= P, G members in a phase:
//
//   k_tree    sum over phases of (stages hops alpha + stages beta), stages = floor(min(g, G)/2), hops = g^phase;
//             multicast alpha times the longer way from the root, P/2 or more where the last phase has few members; 1.5
//             n for words in, added and out. K = 2: about alpha (g/2 + (G/2) g + P/2) + beta (g/2 + G/2) + 1.5 n
//   pipeline  P (alpha + beta) + P alpha + n
//   ring      2 (P - 1) (2 alpha + beta + ceil(words / P)), over two hops: reduce-scatter and all-gather, where the
//             paper's 6.1 has (2 alpha + beta) N, one of the two
//
// Each of the routing stages that follow one another waits beside that, by the synchronisation, for the hops of its own
// way: (hops alpha + r) / 2 with rendezvous, hops alpha + r with barriers.
//
// Routes of an axis: 4 K + 2 (both directions of a phase, each by two alternating colours; the multicast), 4 and 3.
WaferCost all_reduce_cost(const PlmrDevice&, int line, std::int64_t n, const AllReduceOptions& = {});

// y [n] = x [k] B [k, n], with k along y: Kt (cv + e Nt), then an all-reduce of Nt values along y.
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, const AllReduceOptions& = {});

// What a layer of prefill multiplies, and between which numbers of cores a layer of decode adds up how many values. Of
// a model with experts: attention's, and each expert's on the whole mesh, which is how the baselines take them.
struct LayerGemm {
  std::string name;
  int count = 1;
  GemmSize size;
  WaferGemm method = WaferGemm::mesh_gemm;
};
std::vector<LayerGemm> prefill_gemms(const WaferModel&, std::int64_t tokens);
struct LayerAllReduce {
  int line = 0;
  double n = 0;
};
enum class TileSizes : std::uint8_t { rounded_up, exact };
std::vector<LayerAllReduce> decode_all_reduces(const WaferModel&, WaferMesh, std::int64_t context,
                                               TileSizes = TileSizes::rounded_up);

// A layer of prefill over `tokens` tokens: the GEMMs of Q, K, V, scores (gemm_t), values, O, gate, up and down. As in
// the program that the paper measured, K and V are computed for all heads, whatever num_kv_heads says, and what is
// neither GEMM nor transfer lies in the fitted constants. Memory: this layer's weights and activations.
// Experts (wafer/programs/moe.h): the router, GEMMs of tokens * experts_per_token / experts rows in bands, and all-to-all
// there and back, all for tokens that are spread evenly: the middle of a column of cores passes on height/4 cores' rows
// a way.
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens,
                             WaferSync = WaferSync::dataflow);

// A layer of decode for one token after `context`: GEMVs, which turn from one axis to the other, so that nothing is
// transposed, thirteen all-reduces (each GEMV's, two norms', two of softmax), element-wise work and a fixed serial
// part. On a square mesh with d, f, s = hidden, intermediate, context / P: e (4 d^2 + 2 d s + 3 d f) + cv (7 d + s + f)
// + cw (10 d + 3 s + 2 f) + Fd + all-reduces. The same words hold for K and V. Memory: this layer's weights and KV
// cache. Experts are cut over all cores: those of a token one after the other, with one sum of what they make, and the
// router's.
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context,
                            const AllReduceOptions& = {});

struct KvCapacityOptions {
  // Meshes that share the layers as pipeline stages; 0: as many as the device's cores make, whatever their shape, which
  // is how table 5 must have counted (wafer_regions.h).
  int regions = 0;
  double reserve_bytes = 8016;  // of a core, for programs and buffers: chosen so that table 5's visible cell comes out
};

struct KvCapacity {
  int regions = 0;
  int side_by_side = 0;            // regions that lie as they are in the device's rectangle
  double weight_bytes = 0;         // of a core
  double token_bytes = 0;          // of a core, for one token in its row
  double free_bytes = 0;           // of a core
  std::int64_t concat_tokens = 0;  // floor(x), x = free / token: new tokens all go to one row
  std::int64_t shift_tokens = 0;   // floor(rows x): every row fills
};

// Tokens of one request's KV cache beside the layers' weights (4.3, table 5). Layers and heads are spread evenly, to
// fractions. Throws InputError, with the number of regions or the smallest square mesh that would do, when the weights
// leave no room.
KvCapacity kv_capacity(const PlmrDevice&, const WaferModel&, WaferMesh, const KvCapacityOptions& = {});

}  // namespace heddle

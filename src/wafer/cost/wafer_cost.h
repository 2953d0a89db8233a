// Analytical model of the costs of programs on a PLMR device: WaferLLM's GEMMs (section 5), GEMVs (section 6), a layer
// of prefill and of decode (section 4), and KV-cache capacity. docs/notes/wafer.md has the fit of its constants.
//
// README.md has the formulas and their symbols. Units: cycles, bytes. In layers of prefill, cycles use a tile size
// between the exact one and the rounded one, by the device's tile_rounding: the paper's system spreads tiles evenly,
// Heddle's programs pad.
//
// Every function throws InvalidArgument on sizes < 1. It throws InputError on a mesh with a side below 3 or larger than
// the device, and where memory or routes of a core do not suffice: the message names phase, mesh, core, need and
// budget, and the smallest square mesh of the device with enough memory or the largest K that the routes allow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wafer/cost/basis.h"
#include "wafer/cost/plmr.h"

namespace heddle {

inline constexpr double kValueBytes = 2;  // fp16

// width: cores along x, which split columns; height: cores along y, which split rows.
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
  int experts = 0;              // per layer, each `intermediate` wide; 0: one feed-forward for all tokens
  int experts_per_token = 0;    // chosen per token
  bool tied_embedding = false;  // the embedding also serves as output weights
};

// How the cores begin a step. dataflow: a core begins as soon as its own operands are there. rendezvous: two buffers; a
// buffer is sent again only when the receiver has taken the last message. barrier: all cores wait for the last one.
enum class WaferSync : std::uint8_t { dataflow, rendezvous, barrier };

enum class WaferGemm : std::uint8_t { mesh_gemm, gemm_t, summa, cannon, all_gather };

enum class WaferAllReduce : std::uint8_t { k_tree, pipeline, ring };

// The part of a decode layer that no operation explains: what was left over when the constants were fitted.
inline constexpr const char* kFittedResidual = "fitted residual";

struct WaferCost {
  struct Part {
    std::string name;
    double cycles;
    Basis basis = Basis::analytical;
  };
  std::vector<Part> breakdown;  // a part of several bases is there once for each
  double memory_bytes = 0;      // of the fullest core
  int routes = 0;               // of the busiest core
  double resident_bytes = 0;  // the part of memory_bytes that stays for the next token: a layer's weights and KV cache
  double buffer_bytes = 0;    // the part of memory_bytes for the tiles of a prefill layer's largest GEMM

  double at_least = 0;  // cycles that a run whose words were counted cannot take less than; 0 of others

  double cycles() const;                       // the sum of the breakdown
  double cycles(std::string_view part) const;  // of the part of that name; 0 if there is none
  double cycles(Basis basis) const;
  Bases bases() const;  // of all parts
  Bases bases(std::string_view part) const;
  void add(std::string_view part, double cycles, Basis basis = Basis::analytical);
  // Of a program that ran: all its cycles, and those that remain where nothing that was fitted costs anything
  // (without_fitted_costs). The latter have `basis`; what fitted costs add to them is analytical.
  void add_run(std::string_view part, double cycles, double hops_and_words, Basis basis);
  // Simulated and counted: nothing in them was fitted.
  double hops_and_words() const { return cycles(Basis::simulated) + cycles(Basis::counted); }
};

// Regions of experts: bands of `height` rows of the mesh, which work at the same time. Expert e runs in band e % count;
// a band runs `rounds` experts one after the other. A band has at least three rows. Where possible its height divides
// the mesh's width, so that it has no more places than the width (5.4). Throws InputError on a side below 3.
struct ExpertBands {
  int count = 0, height = 0, rounds = 0;
};
ExpertBands expert_bands(WaferMesh mesh, int experts);

// Bytes in fp16: of the weights of all layers, without embedding and logits; of one token's keys and values.
double wafer_weight_bytes(const WaferModel&);
double wafer_kv_bytes(const WaferModel&);

struct GemmSize {
  std::int64_t m = 0, k = 0, n = 0;  // C [m, n] = A [m, k] B [k, n]
};

// fp16. On a mesh that is not square, P is the least common multiple of its sides (5.4): a core then holds the tiles of
// (P/width) (P/height) logical ones.
WaferCost gemm_cost(const PlmrDevice&, const GemmSize&, WaferMesh, WaferGemm, WaferSync = WaferSync::dataflow);

struct AllReduceOptions {
  WaferAllReduce method = WaferAllReduce::k_tree;
  int phases = 2;  // K of the K-tree
  WaferSync sync = WaferSync::dataflow;
};

// All-reduce of n fp16 values among `line` >= 2 cores in a line.
WaferCost all_reduce_cost(const PlmrDevice&, int line, std::int64_t n, const AllReduceOptions& = {});

// y [n] = x [k] B [k, n], with k along y: Kt (cv + e Nt), then an all-reduce of Nt values along y. A batch of vectors
// multiplies B one after the other and is summed together: batch Kt (cv + e Nt), an all-reduce of batch Nt values.
WaferCost gemv_cost(const PlmrDevice&, std::int64_t k, std::int64_t n, WaferMesh, const AllReduceOptions& = {},
                    std::int64_t batch = 1);

// The GEMMs of a prefill layer, and the all-reduces of a decode layer (number of cores, number of values). For a model
// with experts: attention's, and each expert's on the whole mesh, as the baselines run them.
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
// the program the paper measured, K and V are computed for all heads, whatever num_kv_heads says. Work that is neither
// GEMM nor transfer is part of the fitted constants. Memory: this layer's weights and activations. Experts
// (wafer/programs/moe.h): the router, GEMMs of tokens * experts_per_token / experts rows in bands, and two all-to-alls
// (dispatch, combination). Tokens are assumed to be spread evenly: the middle of a column of cores passes on the rows
// of height/4 cores in each direction.
WaferCost prefill_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t tokens,
                             WaferSync = WaferSync::dataflow);

// A layer of decode for one token after `context`: GEMVs along alternating axes, so that nothing is transposed;
// thirteen all-reduces (one per GEMV, two of norms, two of softmax); element-wise work; and a fixed part, the fitted
// residual. K and V are counted as in prefill_layer_cost. Memory: this layer's weights and KV cache. Experts are split
// over all cores: a token's experts run one after the other, with one sum of their outputs and one for the router.
WaferCost decode_layer_cost(const PlmrDevice&, const WaferModel&, WaferMesh, std::int64_t context,
                            const AllReduceOptions& = {});

struct KvCapacityOptions {
  // Meshes that share the layers as pipeline stages; 0: cores of the device / cores of the mesh, whatever their shape,
  // which is apparently how table 5 counts (wafer_regions.h).
  int regions = 0;
  double reserve_bytes = 8016;  // per core, for programs and buffers; chosen to reproduce table 5's known cell
};

struct KvCapacity {
  int regions = 0;
  int side_by_side = 0;            // regions that fit into the device's rectangle
  double weight_bytes = 0;         // per core
  double token_bytes = 0;          // per core, for one token in its row
  double free_bytes = 0;           // per core
  std::int64_t concat_tokens = 0;  // floor(x), x = free / token: new tokens all go to one row
  std::int64_t shift_tokens = 0;   // floor(rows x): every row fills
};

// Tokens of one request's KV cache that fit beside the layers' weights (4.3, table 5). Layers and heads are spread
// evenly, in fractions. Throws InputError when the weights leave no room; the message has the number of regions or the
// smallest square mesh that would do.
KvCapacity kv_capacity(const PlmrDevice&, const WaferModel&, WaferMesh, const KvCapacityOptions& = {});

}  // namespace heddle

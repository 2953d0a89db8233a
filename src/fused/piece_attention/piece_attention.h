// Attention over many query pieces and many key/value pieces, with its sums carried from call to call (StreamFusion,
// Algorithm 2 and appendix C).
//
// Each query attends to all keys of the call's key/value pieces, in the order of the layout. With the state (O', l, m)
// of earlier calls, or (0, 0, -infinity), and s[j] = dot(q, k[j]) * scale, each block of up to 128 keys of a piece does
//   m' = max(m, s[j]),  c = exp(m - m'),  l = l * c + sum_j exp(s[j] - m'),  O' = O' * c + sum_j exp(s[j] - m') v[j]
// and a call that finalises writes y = O' / l: equation 3 of the paper, whose m lacks the scale that ours has. Where no
// call's key was visible to a query, l is 0 and y is 0. Causal attention hides keys at positions after the query's own.
//
// Numbers on the CPU: float32, as kernels/README.md defines for `attention` in float32; inputs of 16 bits are widened, y is
// rounded. The same pieces in the same order give the same bits in one call as in several. On a GPU products are of 16
// bits and sums of float32, as kernels/README.md defines for its prefill; weights are relative to a base that may lie
// below the largest score by 2^8; where sums are divided depends on the call's queries and SMs. Calls agree within the error of
// float32, and a call's repetition in all bits.
#pragma once

#include "base/lane.h"
#include "fused/piece_attention/piece_layout.h"

namespace heddle {

// Where the state comes from.
enum class PieceStart : std::uint8_t {
  fresh,   // nothing was before: o, l and m are not read
  carried  // o, l and m are those of an earlier call
};

// What becomes of it.
enum class PieceEnd : std::uint8_t {
  carry,    // o, l and m are written
  finalise  // y is written; o, l and m are left as they were
};

// Which keys a query sees.
enum class PieceMask : std::uint8_t { full, causal };

struct PieceAttentionParams {
  const PieceLayout* layout = nullptr;  // outlives the call's work
  float scale = 0;                      // of the scores; 1 / sqrt(head_dim) for DiTs
  PieceStart start = PieceStart::fresh;
  PieceEnd end = PieceEnd::finalise;
  PieceMask mask = PieceMask::full;
};

// Bytes of a lane's workspace, aligned to 16, with which a call on a GPU divides the keys of its last queries among SMs that
// would be idle (piece_shares.h): 2 (head_dim + 2) x 128 or 192 floats an SM, some 17 MB. It does not where there are fewer, or
// where queries see different keys. 0 on the CPU.
std::size_t piece_attention_workspace(const PieceShape& shape, Device device);

// Enqueues on the lane's stream. q, k, v may not overlap what is written, nor y of one piece that of another. Allocates
// nothing. On a GPU it is one launch, which a graph may repeat with the same bits; calls of one layout and of its copies, in
// graphs, too, run one after the other. Throws InvalidArgument when the layout is null or of another device, when a piece that
// is finalised has no y, and on a GPU unless scale > 0.
void piece_attention(const PieceAttentionParams& params, const Lane& lane);

}  // namespace heddle

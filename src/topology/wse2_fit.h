// Made by tools/fit_plmr.py from the visible cells of tables 3, 4 and 6 of the WaferLLM paper. Do not edit.
#pragma once

namespace heddle::wse2_fit {

struct Fitted {
  double value, low, high;
};

// Cycles a multiply-accumulate
inline constexpr Fitted kMacCycles{0.643686, 0.631145, 0.657449};
// Cycles a call in a GEMM's tile step: a slice (one index of the inner dimension), a transfer
inline constexpr Fitted kCallCycles{55.6104, 54.8903, 56.6916};
// Cycles a slice of a GEMV
inline constexpr Fitted kVectorSliceCycles{6.29279, 4.67801, 21.667};
// Cycles a routing stage
inline constexpr Fitted kBetaCycles{2.60283, 1.34337, 12.5451};
// Cycles of a decode layer's other serial work
inline constexpr Fitted kDecodeSerialCycles{4559.16, 0, 4721.62};

}  // namespace heddle::wse2_fit

// Made by tools/fit_plmr.py from the visible cells of tables 3, 4 and 6 of the WaferLLM paper. Do not edit.
#pragma once

#include <array>

namespace heddle::wse2_fit {

struct Fitted {
  double value, low, high;
};

// Cycles a multiply-accumulate
inline constexpr Fitted kMacCycles{0.641908, 0.62855, 0.657032};
// Cycles a call in a GEMM's tile step: a slice (one index of the inner dimension), a transfer
inline constexpr Fitted kCallCycles{55.7228, 55.0073, 56.8747};
// Cycles a value of a decode layer's element-wise work
inline constexpr Fitted kValueCycles{8.942, 6.51899, 12.7693};
// Cycles a routing stage
inline constexpr Fitted kBetaCycles{7.68869, 7.35283, 12.4704};
// Cycles of a decode layer's other serial work
inline constexpr Fitted kDecodeSerialCycles{2108.27, 0, 2710.39};

// The fits that leave out one cell or one model, from which the ranges are:
// kMacCycles, kCallCycles, kValueCycles, kBetaCycles, kDecodeSerialCycles
inline constexpr std::array<std::array<double, 5>, 15> kOtherFits{{
    {0.638525, 55.8839, 9.04652, 7.74799, 2076.68},
    {0.646731, 55.0073, 8.79298, 7.60414, 2153.32},
    {0.62855, 56.8747, 9.35467, 7.92282, 1983.53},
    {0.639467, 55.85, 9.0174, 7.73146, 2085.48},
    {0.645551, 55.8503, 8.82945, 7.62482, 2142.3},
    {0.644503, 55.4554, 8.86183, 7.6432, 2132.51},
    {0.642238, 55.702, 9.5023, 7.66047, 2043.02},
    {0.64253, 55.6835, 7.97406, 7.6437, 2341.94},
    {0.641907, 55.7229, 8.23935, 7.69193, 2248.67},
    {0.6421, 55.7106, 7.81625, 7.67, 2289.69},
    {0.642199, 55.7044, 8.94287, 7.67284, 2084.62},
    {0.642487, 55.6862, 10.4783, 7.6469, 1800.77},
    {0.643715, 55.6086, 12.7693, 12.4704, 0},
    {0.639036, 55.4781, 6.51899, 7.66281, 2710.39},
    {0.657032, 55.2366, 8.8556, 7.35283, 2078.73},
}};

struct Relay {
  double cycles, word_cycles;
};

// What a core takes to hand a tile or a sum on in the baselines' cells of tables 3 and 4.
inline constexpr Relay kT10Gemm{53.627, 2.31132};
inline constexpr Relay kT10AllReduce{13.8809, 0};
inline constexpr Relay kLadderGemm{432.856, 1.88238};
inline constexpr Relay kLadderAllReduce{178.887, 45.394};

}  // namespace heddle::wse2_fit

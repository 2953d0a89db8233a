// Made by tools/fit_plmr.py from the visible cells of tables 3, 4 and 6 of the WaferLLM paper. Do not edit.
#pragma once

#include <array>

namespace heddle::wse2_fit {

struct Fitted {
  double value, low, high;
};

// Cycles a multiply-accumulate
inline constexpr Fitted kMacCycles{0.643606, 0.629951, 0.658826};
// Cycles a call in a GEMM's tile step: a slice (one index of the inner dimension), a transfer
inline constexpr Fitted kCallCycles{55.386, 54.6737, 56.557};
// Cycles a value of a decode layer's element-wise work
inline constexpr Fitted kValueCycles{8.88964, 6.47647, 12.7362};
// Cycles a routing stage
inline constexpr Fitted kBetaCycles{7.65905, 7.32076, 12.4787};
// Cycles of a decode layer's other serial work
inline constexpr Fitted kDecodeSerialCycles{2124.08, 0, 2723.28};

// Standard error of a cell's time, as a part of it.
inline constexpr double kResidual = 0.0136364;
// How far table 2's rates are, of which nothing was fitted: root of the mean square, as a part.
inline constexpr double kEndToEndResidual = 0.0945637;

// The fits that leave out one cell or one model, from which the ranges are:
// kMacCycles, kCallCycles, kValueCycles, kBetaCycles, kDecodeSerialCycles
inline constexpr std::array<std::array<double, 5>, 15> kOtherFits{{
    {0.640317, 55.5408, 8.99121, 7.71664, 2093.39},
    {0.648417, 54.6737, 8.74094, 7.57464, 2169.04},
    {0.629951, 56.557, 9.31217, 7.89917, 1996.2},
    {0.64129, 55.5054, 8.9612, 7.69963, 2102.45},
    {0.647233, 55.5135, 8.7768, 7.59456, 2158.36},
    {0.646278, 55.1114, 8.80731, 7.61246, 2148.92},
    {0.643932, 55.3662, 9.45166, 7.63089, 2058.58},
    {0.644221, 55.3484, 7.92101, 7.61424, 2357.88},
    {0.643606, 55.3859, 8.18698, 7.66228, 2264.48},
    {0.643796, 55.3745, 7.76034, 7.64038, 2306.04},
    {0.643895, 55.3682, 8.89064, 7.64327, 2100.34},
    {0.644178, 55.351, 10.4276, 7.61744, 1816.2},
    {0.64619, 55.0805, 12.7362, 12.4787, 0},
    {0.640397, 55.1747, 6.47647, 7.63915, 2723.28},
    {0.658826, 54.8965, 8.79639, 7.32076, 2096.13},
}};

// Baselines' constants, fitted to their cells of tables 3 and 4 (wafer_baselines.h), and the standard error
// of a cell's time by them: of GEMMs, of sums, and of table 2's rates.
struct BaselineResiduals {
  double gemm, sum, end_to_end;
};
inline constexpr Fitted kT10GemmSetup{3.28976e+07, 3.08218e+07, 3.3512e+07};
inline constexpr Fitted kT10GemmCrossbar{0.00695778, 0.00689425, 0.00717092};
inline constexpr Fitted kT10SumRelay{13.8796, 13.582, 14.2014};
inline constexpr Fitted kLadderGemmAccess{434.907, 433.781, 435.804};
inline constexpr Fitted kLadderSumAccess{178.886, 172.082, 184.197};
inline constexpr Fitted kLadderSumValue{22.697, 22.0347, 23.3335};
inline constexpr BaselineResiduals kT10Residuals{0.00762318, 0.0324514, 0.0707228};
inline constexpr BaselineResiduals kLadderResiduals{0.0062258, 0.00782062, 0.0649042};

}  // namespace heddle::wse2_fit

// Made by tools/fit_plmr.py from the visible cells of tables 3, 4 and 6 of the WaferLLM paper. Do not edit.
#pragma once

#include <array>

namespace heddle::wse2_fit {

struct Fitted {
  double value, low, high;
};

// Cycles per multiply-accumulate
inline constexpr Fitted kMacCycles{0.657768, 0.624385, 0.690621};
// Cycles per call in a GEMM's tile step: a slice (one index of the inner dimension), a transfer
inline constexpr Fitted kCallCycles{56.9449, 54.9358, 59.3824};
// Cycles per value of a decode layer's element-wise work
inline constexpr Fitted kValueCycles{10.261, 8.09304, 13.7447};
// Cycles per routing stage
inline constexpr Fitted kBetaCycles{7.90661, 7.26954, 11.6793};
// Cycles of a decode layer that nothing else explains
inline constexpr Fitted kDecodeSerialCycles{1728.51, 0, 2159.09};

// Standard error of the fitted time of a cell, relative.
inline constexpr double kResidual = 0.015639;

// Relative errors of table 2's rates, which are held out from the fit: by the model's hidden size, tokens in and out.
struct EndToEndError {
  int hidden, in, out;
  double error;
};
inline constexpr std::array<EndToEndError, 6> kEndToEndErrors{{
    {4096, 2048, 128, -0.0591924},
    {4096, 4096, 128, -0.00438654},
    {4096, 2048, 2048, -0.00205396},
    {5120, 2048, 128, 0.163102},
    {5120, 4096, 128, 0.118942},
    {5120, 2048, 2048, 0.059908},
}};
inline constexpr std::array<EndToEndError, 6> kT10EndToEndErrors{{
    {4096, 2048, 128, -0.0619271},
    {4096, 4096, 128, -0.0901418},
    {4096, 2048, 2048, -0.0393779},
    {5120, 2048, 128, 0.0990282},
    {5120, 4096, 128, 0.0764633},
    {5120, 2048, 2048, 0.0724456},
}};
inline constexpr std::array<EndToEndError, 6> kLadderEndToEndErrors{{
    {4096, 2048, 128, -0.137219},
    {4096, 4096, 128, -0.0625481},
    {4096, 2048, 2048, -0.0439098},
    {5120, 2048, 128, -0.0715275},
    {5120, 4096, 128, -0.0749238},
    {5120, 2048, 2048, -0.0279931},
}};

// Position of a prefill tile's size between exact (0) and rounded up (1): chosen, not fitted.
inline constexpr double kTileRounding = 0.666667;

// The fits that leave out one cell or one model, and those with another rounding; the source of ranges:
// kMacCycles, kCallCycles, kValueCycles, kBetaCycles, kDecodeSerialCycles, kTileRounding
inline constexpr std::array<std::array<double, 6>, 18> kOtherFits{{
    {0.650286, 57.2837, 10.5028, 8.03981, 1656.77, 0.666667},
    {0.659067, 56.7401, 10.219, 7.88344, 1740.99, 0.666667},
    {0.63441, 58.897, 11.0174, 8.32414, 1503.77, 0.666667},
    {0.659571, 56.8548, 10.2027, 7.87448, 1745.81, 0.666667},
    {0.6616, 57.0712, 10.1362, 7.83741, 1765.7, 0.666667},
    {0.672943, 55.466, 9.77134, 7.63726, 1873.65, 0.666667},
    {0.658307, 56.913, 11.0803, 7.8622, 1634.04, 0.666667},
    {0.657759, 56.9454, 10.2707, 7.90722, 1726.13, 0.666667},
    {0.657585, 56.9555, 8.09304, 7.92762, 2159.09, 0.666667},
    {0.657559, 56.9572, 11.1472, 7.92461, 1584.77, 0.666667},
    {0.658277, 56.9144, 10.2724, 7.88049, 1669.86, 0.666667},
    {0.658049, 56.9282, 10.7766, 7.88766, 1626.38, 0.666667},
    {0.65896, 56.7591, 13.7447, 11.6793, 0, 0.666667},
    {0.624385, 59.3824, 8.96911, 8.45706, 1980.87, 0.666667},
    {0.690621, 54.9358, 9.77221, 7.26954, 1847.44, 0.666667},
    {0.679819, 60.595, 9.54709, 7.51264, 1940.59, 0},
    {0.669645, 58.7017, 9.87636, 7.6943, 1842.79, 0.333333},
    {0.644386, 55.3223, 10.6945, 8.14603, 1599.65, 1},
}};

// Baselines' constants, fitted to their cells of tables 3 and 4 (wafer_baselines.h).
inline constexpr double kT10GemmCrossbar = 10.6063;
inline constexpr double kT10SumRelay = 13.9971;
inline constexpr double kLadderGemmAccess = 464.521;
inline constexpr double kLadderGemmWeight = 0.0886602;
inline constexpr double kLadderSumAccess = 247.67;
inline constexpr double kLadderSumValue = 12.653;
inline constexpr double kLadderSumWeight = 0.0237582;
inline constexpr double kT10GemmPower = 0.7;       // chosen
inline constexpr double kLadderWeightPower = 1.5;  // chosen

// Relative errors of a fitted cell's time: the standard error, and the largest change for any of four models when a
// cell or a model is left out or the power changes.
struct BaselineResiduals {
  double gemm, gemm_spread, sum, sum_spread;
};
inline constexpr BaselineResiduals kT10Residuals{0.0152093, 0.0656601, 0.0356727, 0.0234342};
inline constexpr BaselineResiduals kLadderResiduals{0.0140511, 0.0394106, 0.00907078, 0.0142007};

}  // namespace heddle::wse2_fit

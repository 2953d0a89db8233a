// Analytical model of an all-gather and a GEMM that overlap (fused/all_gather_linear), on one rank of several that do
// alike: max(compute, transfer), and what is exposed besides. A bound, since GEMM and links reach their rates: what a
// measurement has beyond it is launches, waits and ranks that come late.
#pragma once

#include <algorithm>

namespace heddle {

// What one rank reaches.
struct RankRates {
  double flops_per_second;
  double memory_bytes_per_second;
  double link_bytes_per_second;  // into this rank, while all receive
  bool overlaps;                 // transfers go on while the GEMM computes, without its time
};

// What one rank does of y = A W^T.
struct GatherWork {
  double flops;           // of its columns of y
  double memory_bytes;    // that the GEMM reads and writes once: A, its rows of W, its columns of y
  double transfer_bytes;  // of A that come from other ranks, or that it moves for them
  double tiles;           // in which A comes, of all ranks
};

// `efficiency`: the share of the rate that the GEMM can have, for SMs that transfer and tiles that do not fill all SMs.
constexpr double compute_seconds(const GatherWork& work, const RankRates& rates, double efficiency = 1) {
  return std::max(work.flops / (rates.flops_per_second * efficiency),
                  work.memory_bytes / rates.memory_bytes_per_second);
}

constexpr double transfer_seconds(const GatherWork& work, const RankRates& rates) {
  return work.transfer_bytes / rates.link_bytes_per_second;
}

// One after the other: the whole transfer is exposed.
constexpr double sequential_seconds(const GatherWork& work, const RankRates& rates) {
  return transfer_seconds(work, rates) + compute_seconds(work, rates);
}

// Tile by tile, this rank's own first. Exposed is the GEMM of the tile that comes last; with one tile for each of two ranks
// that is half of it.
constexpr double overlapped_seconds(const GatherWork& work, const RankRates& rates, double efficiency = 1) {
  const double compute = compute_seconds(work, rates, efficiency), transfer = transfer_seconds(work, rates);
  return rates.overlaps ? std::max(compute, transfer + compute / work.tiles) : compute + transfer;
}

// The share of a GPU's SMs that compute while tiles of `rows` x `columns` of an m x n result, one a SM, go in rounds. `round`:
// the time of a round over that of tiles of full_tile elements; it grows less than the tile does.
constexpr double tile_efficiency(double m, double n, double rows, double columns, double sms, double round,
                                 double full_tile) {
  const auto up = [](double a, double b) { return static_cast<double>(static_cast<long long>((a + b - 1) / b)); };
  const double rounds = up(up(m, rows) * up(n, columns), sms);
  return m * n / (rounds * sms * round * full_tile);
}

namespace h200 {
// A SM's share of what cuBLASLt reaches with 16-bit operands in 8192 x 7168 x 8192, 1510 us (docs/notes/fused.md): the data
// sheet's 989e12 of 132 SMs is not reached within the power limit.
inline constexpr double kGemmFlopsPerSm = 637e12 / 132;
}  // namespace h200

static_assert(sequential_seconds({.flops = 8, .memory_bytes = 1, .transfer_bytes = 4, .tiles = 2}, {4, 1, 2, true}) ==
              4);
static_assert(overlapped_seconds({.flops = 8, .memory_bytes = 1, .transfer_bytes = 4, .tiles = 2}, {4, 1, 2, true}) ==
              3);
static_assert(overlapped_seconds({.flops = 8, .memory_bytes = 1, .transfer_bytes = 4, .tiles = 2}, {4, 1, 2, false}) ==
              4);
static_assert(overlapped_seconds({.flops = 80, .memory_bytes = 1, .transfer_bytes = 4, .tiles = 2}, {4, 1, 2, true}) ==
              20);
static_assert(tile_efficiency(256, 512, 128, 256, 4, 1.0, 128.0 * 256) == 1.0);
static_assert(tile_efficiency(256, 512, 128, 256, 8, 1.0, 128.0 * 256) == 0.5);

}  // namespace heddle

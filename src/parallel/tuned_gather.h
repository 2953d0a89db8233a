// What `heddle tune all-gather-linear` has found on this machine: how the GEMM behind a norm that is divided by token gets
// the rows of all ranks (`--tp-mode sequence`), by the number of rows.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "step/step_choices.h"

namespace heddle {

class TunedStore;

// A GEMM over the rows of all ranks: A [rows, k], sharded on rows, times the transpose of W [n, k], of which each rank has
// some of the n rows.
struct GatherKey {
  std::int64_t n = 0, k = 0;
  std::string dtype;  // of W, as name_of(DType) has it
  int ranks = 1;
  DeviceKind device = DeviceKind::cpu;
  bool shared = false;  // several ranks on one GPU
};

// "push", "pull, 8 SMs", "push, tile 1", "bsp"; what a form does not take is left out.
std::string text_of(const GatherChoice& choice);

// Nothing: bsp, which is no variant of the fused operator.
std::optional<GatherVariant> gather_variant(const GatherChoice& choice);

// What is tried for A of so many rows, the untuned choice first: the forms; on a GPU also the tiles of the GEMM and pull's
// SMs, where the rows are so many that both matter (gather_first_rows). Without what the ranks would not run as it is named:
// bsp of rows that they do not divide, and tiles of clusters where they share a GPU.
std::vector<GatherChoice> gather_choices(const GatherKey& key, std::int64_t rows);

struct GatherTime {
  GatherChoice choice;
  double microseconds = 0;
};

// One measured number of rows, each choice once.
struct GatherSample {
  int rows = 0;
  std::vector<GatherTime> times;
};

// One line: rows beyond those of the line before, up to and including up_to_rows.
struct GatherLine {
  int up_to_rows = std::numeric_limits<int>::max();
  GatherChoice choice = {};
  double microseconds = 0, untuned_microseconds = 0;  // as measured: of the choice, and of the untuned one

  friend bool operator==(const GatherLine&, const GatherLine&) = default;
};
using GatherTable = std::vector<GatherLine>;  // by size; the last line has no limit

// Of an empty table the untuned choice, which is GatherChoice{}.
GatherChoice gather_for(const GatherTable& table, int rows);

// Each measured number of rows decides for itself and for smaller ones down to the next, the largest for all above. The
// first of a sample's choices stands unless another is faster by one per cent at least, since less is noise. `samples` by
// rows; none without times.
GatherTable choose_gathers(const std::vector<GatherSample>& samples);

// Nothing: not tuned, or no table.
std::optional<GatherTable> tuned_gathers(const TunedStore& store, const GatherKey& key);
void put_tuned_gathers(TunedStore& store, const GatherKey& key, const GatherTable& table);

}  // namespace heddle

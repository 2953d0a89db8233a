// Rows of the StreamFusion paper's figures 7 to 10: attention layers that are predicted, or measured on ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/rank_hosts.h"
#include "cli/sequence_rates.h"
#include "parallel/sequence/plan.h"

namespace heddle {

// Layers of these ranks, and how they are measured.
struct RankLayers {
  bool is_predicted = false;  // alone; nothing is measured
  std::string fabric = "shm";
  Placement placement;
  // Of figure 9 every length with the first batch, and every other batch with the first length, for each head
  // dimension. Empty: the figure's defaults.
  std::vector<int> tokens, head_dims, batches;
  std::vector<SequenceStrategy> strategies;  // empty: all
  std::vector<int> degrees;                  // empty: gcd_rule(), in figures 7 and 8 all that fit
  int heads = 8;
  int repeats = 5;
  int halves = 1;               // 2: CFG parallelism (divide_batch)
  bool timed_waits = false;     // in place of computation
  bool emulates_links = false;  // between machines, on one host (fabric/paced), with the rates' bandwidth and latency
  bool eager = false;           // on GPUs: each operation of a layer is a launch of its own
  bool compute_alone = false;   // layers without their transfers, too, interleaved
  int deadline_seconds = 60;    // of ranks' waits
};

struct LayerMeasurement {
  std::vector<double> samples;      // seconds from a barrier until the last rank has its output
  std::vector<double> alone;        // the same without transfers; empty: not measured
  std::int64_t moved_elements = 0;  // that entered or left the machine with the most of them, in one layer
  std::optional<double> error;      // the largest of a rank's rows, against float64; not with timed waits
  DType dtype = DType::float32;
  RankHosts hosts = RankHosts::one_host;
  std::string fabric;
  bool emulates_links = false;
  bool from_graph = false;
};

struct FigureRow {
  std::string layer;
  Placement placement;
  int halves = 1;  // of the batch, each with a team of its own
  SequenceStrategy strategy = SequenceStrategy::ulysses;
  SequenceMesh mesh;                      // of a team
  double seconds = 0;                     // the median, of measured rows
  std::optional<double> exposed_seconds;  // of measured rows with timed waits, or beside computation alone
  std::int64_t counted_elements = 0;      // of a machine
  std::optional<LayerMeasurement> measured;
};

// Whether y of a measured row, as far as it was checked, is within the bound of its dtype.
bool has_right_values(const FigureRow& row);

// Figure 7, each strategy with the degrees that serve it best; 8, every degree; 9, head dimension, length and batch,
// each strategy with its best degree; 10, what each idea adds, with the degree of gcd_rule(). Of the paper's layers on
// its machines of 8 GPUs.
std::vector<FigureRow> predicted_figure(int figure, const SequenceRateTable& rates);

// The same of the layers that measured_figure() would run.
std::vector<FigureRow> predicted_figure(int figure, const RankLayers& layers, const SequenceRateTable& rates);

// The same of layers that ranks of this machine run, or of those that mpirun has started: of every strategy asked for
// that fits. With timed waits, or attention's rate given, a predicted row goes before each measured one. Where values
// are wrong, figure 7 has every degree. Rows are of rank 0; nothing in processes of others. Throws InputError when the
// ranks are not those of the placement.
std::optional<std::vector<FigureRow>> measured_figure(int figure, const RankLayers& layers,
                                                      const SequenceRateTable& rates);

}  // namespace heddle

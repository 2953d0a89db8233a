// The measured rows of sequence_figures.h.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/graph.h"
#include "cli/bench/exact_attention.h"
#include "cli/bench/quantile.h"
#include "cli/bench/sequence_figures.h"
#include "cli/bench/sequence_operands.h"
#include "fabric/counted_fabric.h"
#include "fabric/discover_machines.h"
#include "fabric/gather_words.h"
#include "fabric/launch.h"
#include "fabric/paced/paced_fabric.h"
#include "fabric/run_ranks.h"
#include "parallel/sequence/batch_teams.h"
#include "parallel/sequence/sequence_attention.h"

namespace heddle {
namespace {

constexpr std::size_t kHeapBeside = std::size_t{1} << 18;  // what ranks tell each other beside a layer

// Shape and mesh are those of a team.
struct FigureLayer {
  std::string name;
  BatchTeams teams;
  SequenceStrategy strategy;
  SequenceShape shape;
  SequenceMesh mesh;
  std::int64_t counted_elements = 0;
  SequenceTimeline timeline;
};

bool has_a_degree(SequenceStrategy strategy) {
  return strategy != SequenceStrategy::ulysses && strategy != SequenceStrategy::ring;
}

struct NamedShape {
  std::string name;
  BatchTeams teams;
  SequenceShape shape;
};

// Every shape of the figure.
std::vector<NamedShape> shapes_of(int figure, const RankLayers& of) {
  const auto or_default = [](const std::vector<int>& given, const std::vector<int>& otherwise) {
    return given.empty() ? otherwise : given;
  };
  const bool varies = figure == 9;
  const std::vector<int> tokens = or_default(of.tokens, varies ? std::vector{256, 512} : std::vector{512});
  const std::vector<int> head_dims = or_default(of.head_dims, varies ? std::vector{32, 64, 128} : std::vector{64});
  std::vector<int> batches = varies ? std::vector{1, 2} : std::vector{1};
  for (int& batch : batches) batch *= of.halves;
  batches = or_default(of.batches, batches);
  // Where computation is predicted or replaced by waits, bytes are those of GPUs.
  const bool is_narrow = of.is_predicted || of.timed_waits || of.fabric.starts_with("nvlink");
  std::vector<NamedShape> shapes;
  for (const int head_dim : head_dims)
    for (const int batch : batches)
      for (const int length : tokens) {
        if (batch != batches.front() && length != tokens.front()) continue;
        std::string name = fmt::format("{} tokens, {} x {}", length, of.heads, head_dim);
        if (batch > 1) name += fmt::format(", batch {}", batch);
        if (of.halves == 2) name += " in halves";
        const BatchTeams teams = divide_batch(of.placement, batch, of.halves, "bench sequence-attention");
        shapes.push_back({std::move(name), teams,
                          even_sequence({.batch = teams.batch,
                                         .num_heads = of.heads,
                                         .head_dim = head_dim,
                                         .dtype = is_narrow ? DType::bfloat16 : DType::float32},
                                        length, teams.placement.size())});
      }
  return shapes;
}

// Nothing: the degree of gcd_rule().
std::vector<std::optional<int>> degrees_of(int figure, const RankLayers& of, int ranks) {
  std::vector<std::optional<int>> degrees(of.degrees.begin(), of.degrees.end());
  if (degrees.empty() && (figure == 7 || figure == 8))
    for (const int degree : ulysses_degrees(ranks, of.heads)) degrees.emplace_back(degree);
  if (degrees.empty()) degrees.emplace_back();
  return degrees;
}

std::vector<FigureLayer> layers_of(int figure, const RankLayers& of, const SequenceRateTable& rates) {
  std::vector<FigureLayer> layers;
  for (const NamedShape& of_figure : shapes_of(figure, of)) {
    const auto& [name, teams, shape] = of_figure;
    for (const int degree : of.degrees)
      if (const std::string why = why_not(SequenceStrategy::tas, teams.placement, of.heads, degree); !why.empty())
        throw_error<InputError>("bench sequence-attention: {}. {}", why, what_fits(teams.placement.size(), of.heads));
    SequenceRates of_team = rates.of(shape.head_dim);
    of_team.machine_link_bytes /= teams.on_a_machine;
    bool is_first_degree = true;
    for (const std::optional<int>& degree : degrees_of(figure, of, teams.placement.size())) {
      for (const SequenceStrategy strategy : kSequenceStrategies) {
        if (!why_not(strategy, teams.placement, of.heads, degree).empty()) continue;
        if (!is_first_degree && !has_a_degree(strategy)) continue;
        if (!of.strategies.empty() && std::ranges::count(of.strategies, strategy) == 0) continue;
        FigureLayer layer{name, teams, strategy, shape, make_sequence_mesh(strategy, teams.placement, of.heads, degree),
                          0,    {}};
        const SequenceMemory memory(layer.mesh, shape);
        const std::vector<SequenceProgram> programs = make_sequence_programs(strategy, memory);
        layer.counted_elements = teams.on_a_machine * count_sequence_programs(memory, programs).largest;
        layer.timeline = predict_sequence(memory, programs, of_team);
        layers.push_back(std::move(layer));
      }
      is_first_degree = false;
    }
    if (layers.empty())  // Ring takes any, so some were asked for
      throw_error<InputError>("bench sequence-attention: {}. {}",
                              why_not(of.strategies.front(), teams.placement, of.heads),
                              what_fits(teams.placement.size(), of.heads));
  }
  return layers;
}

// What this rank has moved over the borders of machines: into each machine, and out of each.
std::vector<std::uint64_t> moved_bytes(const CountedFabric& fabric, const Placement& placement) {
  std::vector<std::uint64_t> moved(2 * static_cast<std::size_t>(placement.machines));
  const auto here = static_cast<std::size_t>(placement.machine_of(fabric.rank()));
  for (int peer = 0; peer < fabric.size(); ++peer) {
    if (placement.share_machine(fabric.rank(), peer)) continue;
    const auto there = static_cast<std::size_t>(placement.machine_of(peer)), of = static_cast<std::size_t>(peer);
    const auto put = static_cast<std::uint64_t>(fabric.put_bytes()[of]);
    const auto got = static_cast<std::uint64_t>(fabric.got_bytes()[of]);
    moved[2 * there] += put;
    moved[2 * here + 1] += put;
    moved[2 * here] += got;
    moved[2 * there + 1] += got;
  }
  return moved;
}

// Of each sample the longest of all ranks: teams end at different times.
std::vector<double> longest_of_ranks(Fabric& fabric, Stream& stream, const std::vector<double>& samples) {
  std::vector<std::uint64_t> nanoseconds;
  nanoseconds.reserve(samples.size());
  for (const double sample : samples) nanoseconds.push_back(static_cast<std::uint64_t>(sample * 1e9));
  const std::vector<std::uint64_t> all = gather_words(fabric, stream, nanoseconds);
  std::vector<double> longest(samples.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& of = longest[i % samples.size()];
    of = std::max(of, static_cast<double>(all[i]) / 1e9);
  }
  return longest;
}

double largest_of_ranks(Fabric& fabric, Stream& stream, double mine) {
  double largest = 0;
  for (const std::uint64_t bits : gather_words(fabric, stream, std::array{std::bit_cast<std::uint64_t>(mine)}))
    largest = std::max(largest, std::bit_cast<double>(bits));
  return largest;
}

// This rank's part of the layer's operands, which do not depend on the strategy.
SequenceOperands operands_of(const FigureLayer& of, int rank, Stream& stream) {
  const std::vector<int> team = of.teams.ranks_of(of.teams.team_of(rank));
  return {of.shape, static_cast<int>(std::ranges::find(team, rank) - team.begin()), stream};
}

struct Timed {
  SequenceWork work;
  Graph graph;
  std::vector<double> samples;
};

// The first layers are to warm up, and one's bytes are counted. On a GPU the others are replays of graphs. The last one
// is not timed: its values are checked.
LayerMeasurement measure_layer(Fabric& inner, Stream& stream, const FigureLayer& of, SequenceOperands& operands,
                               const RankLayers& options, const SequenceRates& rates) {
  CountedFabric fabric(inner);
  const std::vector<int> team = of.teams.ranks_of(of.teams.team_of(fabric.rank()));
  SequenceAttention layer(fabric, team, of.strategy, of.mesh, of.shape);
  if (options.timed_waits) layer.replace_computation(rates);
  const DeviceShare share = fabric.device_share();
  const Lane lane = share.ranks > 1 ? Lane(stream, share.sms) : Lane(stream);
  LayerMeasurement result;
  result.fabric = inner.name();
  result.dtype = of.shape.dtype;
  result.emulates_links = options.emulates_links;
  result.from_graph = fabric.device().kind == DeviceKind::cuda && !options.eager;
  Timed whole{SequenceWork::whole, {}, {}}, alone{SequenceWork::computation, {}, {}};
  const auto seconds_of = [&](const Timed& timed) {
    inner.barrier(stream);
    fabric.synchronize(stream);
    layer.set_work(timed.work);
    const auto begin = std::chrono::steady_clock::now();
    if (timed.graph)
      timed.graph.launch(stream);
    else
      layer.attend(operands.q(), operands.k(), operands.v(), operands.y(), operands.scale(), lane);
    layer.synchronize(stream);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<std::uint64_t> mine;
  std::vector<Timed*> interleaved{&whole};
  if (options.compute_alone) interleaved.push_back(&alone);
  for (Timed* const timed : interleaved) {
    seconds_of(*timed);
    if (timed == &whole) mine = moved_bytes(fabric, options.placement);
    if (result.from_graph)
      timed->graph = layer.capture(operands.q(), operands.k(), operands.v(), operands.y(), operands.scale(), lane);
  }
  for (int i = 0; i < options.repeats; ++i)
    for (Timed* const timed : interleaved) timed->samples.push_back(seconds_of(*timed));
  result.samples = longest_of_ranks(inner, stream, whole.samples);
  if (options.compute_alone) result.alone = longest_of_ranks(inner, stream, alone.samples);
  if (!options.timed_waits) {
    operands.clear_output(stream);
    seconds_of(whole);
    result.error = largest_of_ranks(inner, stream, operands.error(stream));
  }
  const std::vector<std::uint64_t> all = gather_words(inner, stream, mine);
  std::vector<std::uint64_t> of_machines(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) of_machines[i % mine.size()] += all[i];
  result.moved_elements =
      static_cast<std::int64_t>(std::ranges::max(of_machines)) / static_cast<std::int64_t>(size_of(of.shape.dtype));
  return result;
}

std::unique_ptr<Fabric> with_emulated_links(Fabric& inner, const Placement& placement, const SequenceRateTable& rates) {
  const SequenceRates of = rates.of(64);  // links are the same for every head dimension
  const std::chrono::duration<double> latency(of.remote_seconds);
  return std::make_unique<PacedFabric>(
      inner, placement,
      PacedLink{of.machine_link_bytes, std::chrono::duration_cast<std::chrono::nanoseconds>(latency)});
}

void require_placement(Fabric& fabric, Stream& stream, const Placement& placement, int heads) {
  if (fabric.size() != placement.size())
    throw_error<InputError>("bench sequence-attention: {} x {} are {} ranks, and there are {}", placement.machines,
                            placement.ranks_per_machine, placement.size(), fabric.size());
  if (!started_by_mpirun()) return;
  const Placement found =
      equal_machines(discover_machines(fabric, stream, read_launch()), heads, "bench sequence-attention");
  if (found.machines > 1 && found != placement)
    throw_error<InputError>("bench sequence-attention: --machines {} --gpus {}, and the run is {} machines of {} ranks",
                            placement.machines, placement.ranks_per_machine, found.machines, found.ranks_per_machine);
}

FigureRow predicted_row(const FigureLayer& of, const RankLayers& options) {
  return {.layer = of.name,
          .placement = options.placement,
          .halves = options.halves,
          .strategy = of.strategy,
          .mesh = of.mesh,
          .seconds = of.timeline.seconds,
          .exposed_seconds = of.timeline.exposed_seconds,
          .counted_elements = of.counted_elements,
          .measured = {}};
}

// Of figure 7: each strategy's fastest degree in each layer.
std::vector<FigureRow> fastest_rows(std::vector<FigureRow> rows) {
  std::vector<FigureRow> kept;
  for (FigureRow& row : rows) {
    const auto same = std::ranges::find_if(
        kept, [&](const FigureRow& of) { return of.layer == row.layer && of.strategy == row.strategy; });
    if (same == kept.end())
      kept.push_back(std::move(row));
    else if (row.seconds < same->seconds)
      *same = std::move(row);
  }
  return kept;
}

}  // namespace

bool has_right_values(const FigureRow& row) {
  if (!row.measured || !row.measured->error) return true;
  return *row.measured->error <= most_attention_error(row.measured->dtype);
}

std::vector<FigureRow> predicted_figure(int figure, const RankLayers& options, const SequenceRateTable& rates) {
  std::vector<FigureRow> rows;
  for (const FigureLayer& layer : layers_of(figure, options, rates)) rows.push_back(predicted_row(layer, options));
  return figure == 7 ? fastest_rows(std::move(rows)) : rows;
}

std::optional<std::vector<FigureRow>> measured_figure(int figure, const RankLayers& options,
                                                      const SequenceRateTable& rates) {
  const std::vector<FigureLayer> layers = layers_of(figure, options, rates);
  std::size_t heap_bytes = 0;
  for (const FigureLayer& layer : layers)
    heap_bytes = std::max(heap_bytes, SequenceAttention::heap_bytes(SequenceMemory(layer.mesh, layer.shape)));
  const FabricOptions fabric_options{.heap_bytes = heap_bytes + kHeapBeside + PacedFabric::kHeapBytes,
                                     .deadline = std::chrono::seconds(options.deadline_seconds)};
  std::vector<FigureRow> measured;
  bool is_first_rank = false;
  run_ranks(options.fabric, options.placement.size(), fabric_options, [&](Fabric& opened, Stream& stream) {
    require_placement(opened, stream, options.placement, options.heads);
    const RankHosts hosts = find_rank_hosts(opened, stream);
    std::unique_ptr<Fabric> paced;
    if (options.emulates_links) paced = with_emulated_links(opened, options.placement, rates);
    Fabric& fabric = paced ? *paced : opened;
    std::optional<SequenceOperands> operands;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const FigureLayer& layer = layers[i];
      if (i == 0 || layer.name != layers[i - 1].name) {
        operands.reset();
        operands.emplace(operands_of(layer, fabric.rank(), stream));
      }
      LayerMeasurement result =
          measure_layer(fabric, stream, layer, *operands, options, rates.of(layer.shape.head_dim));
      if (fabric.rank() != 0) continue;
      is_first_rank = true;
      result.hosts = hosts;
      FigureRow row = predicted_row(layer, options);
      row.seconds = median(result.samples);
      row.exposed_seconds.reset();
      row.measured = std::move(result);
      if (options.compute_alone)
        row.exposed_seconds = row.seconds - median(row.measured->alone);
      else if (options.timed_waits)
        row.exposed_seconds = row.seconds - layer.timeline.compute_seconds;
      measured.push_back(std::move(row));
    }
  });
  if (!is_first_rank) return {};
  if (figure == 7 && std::ranges::all_of(measured, has_right_values)) measured = fastest_rows(std::move(measured));
  if (!options.timed_waits && !rates.gives_attention()) return measured;
  std::vector<FigureRow> rows;
  rows.reserve(2 * measured.size());
  for (FigureRow& row : measured) {
    const auto layer = std::ranges::find_if(layers, [&](const FigureLayer& of) {
      return of.name == row.layer && of.strategy == row.strategy && of.mesh == row.mesh;
    });
    rows.push_back(predicted_row(*layer, options));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace heddle

#include "wafer/programs/moe.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "wafer/mesh/gemv.h"
#include "wafer/programs/placement.h"
#include "wafer/programs/prefill.h"

namespace heddle {
namespace {

using mesh::Axis;
using mesh::Buffers;
using mesh::Grid;
using mesh::LineOrder;
using mesh::Placement;
using mesh::Reduction;
using mesh::RowMove;
using mesh::Tile;
using mesh::TimedMesh;
using mesh::ValueMesh;

std::size_t slot(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

void check_moe(const WaferMoe& moe, std::span<const float> x) {
  require(moe.hidden > 0 && moe.intermediate > 0 && !moe.experts.empty() && moe.experts_per_token > 0 &&
              moe.experts_per_token <= std::ssize(moe.experts) && moe.router.out_features == std::ssize(moe.experts),
          "{} of {} experts a token, {} logits", moe.experts_per_token, moe.experts.size(), moe.router.out_features);
  require(!x.empty() && std::ssize(x) % moe.hidden == 0, "{} values of tokens, {} each", x.size(), moe.hidden);
}

// The experts with the largest logits, and the softmax over those logits only.
struct Choice {
  std::vector<int> experts;
  std::vector<float> weights;
};
Choice choose(const std::vector<float>& logits, int count) {
  Choice choice{.experts = std::vector<int>(logits.size()), .weights = {}};
  std::iota(choice.experts.begin(), choice.experts.end(), 0);
  std::ranges::stable_sort(choice.experts, [&](int a, int b) { return logits[slot(a)] > logits[slot(b)]; });
  choice.experts.resize(slot(count));
  float sum = 0;
  for (const int expert : choice.experts) {
    choice.weights.push_back(std::exp(logits[slot(expert)] - logits[slot(choice.experts[0])]));
    sum += choice.weights.back();
  }
  for (float& weight : choice.weights) weight /= sum;
  return choice;
}

// Features are contiguous over the cores of a line, `tile` per core; all lines across have the same [tile, experts].
Tile place_router(TimedMesh& mesh, const WaferMoe& moe, int tile, Axis axis) {
  const auto experts = static_cast<int>(moe.experts.size());
  const Tile router = mesh.allocate("router", tile, experts, Buffers::one);
  for (int e = 0; e < experts; ++e) {
    const std::vector<float> row = weight_row(moe.router, e);
    for (int feature = 0; feature < moe.hidden; ++feature) {
      const int core = feature / tile, k = feature % tile;
      if (axis == Axis::y)
        std::fill_n(mesh.at(router, core, k, e), mesh.grid().columns, row[slot(feature)]);
      else
        for (int i = 0; i < mesh.grid().rows; ++i) mesh.at(router, i, k, e)[core] = row[slot(feature)];
    }
  }
  return router;
}

class MoePrefill {
 public:
  MoePrefill(const WaferMoe& moe, WaferMesh cores, std::int64_t tokens, const WaferProgram& program, ThreadPool& pool)
      : moe_(moe),
        program_(program),
        tokens_(tokens),
        bands_(expert_bands(cores, static_cast<int>(moe.experts.size()))),
        band_grid_(band_grid({cores.width, bands_.height})),
        hidden_(even_partition(moe.hidden, band_grid_.columns)),
        intermediate_(even_partition(moe.intermediate, band_grid_.columns)),
        mesh_(program.device, Grid::of_cores(cores), pool),
        core_features_(hidden_.tile * band_grid_.tiles_along(Axis::x)),
        token_tile_(mesh::tile_side(tokens, cores.height)) {
    for (int band = 0; band < bands_.count; ++band) {
      band_meshes_.push_back(std::make_unique<TimedMesh>(program.device, band_grid_, pool));
      band_meshes_.back()->hold(
          "experts", kValueBytes * bands_.rounds * 3 * hidden_.tile * intermediate_.tile * band_grid_.tiles_a_core());
    }
  }

  WaferMoeResult run(std::span<const float> x) {
    load(x);
    route();
    back_ = mesh_.allocate("experts' rows", token_tile_ * moe_.experts_per_token, core_features_, Buffers::one);
    for (int round = 0; round < bands_.rounds; ++round) run_round(round);
    return {.y = combine(), .experts = chosen_, .cost = mesh_.take_cost()};
  }

 private:
  static Grid band_grid(WaferMesh cores) {
    check_prefill_mesh(cores);
    return Grid::square(cores, LineOrder::interleaved);
  }

  void load(std::span<const float> x) {
    mesh_.phase("router");
    x_ = mesh_.allocate("tokens", token_tile_, core_features_, Buffers::one);
    for (std::int64_t t = 0; t < tokens_; ++t)
      for (int f = 0; f < moe_.hidden; ++f) value(x_, t, f) = x[slot(t * moe_.hidden + f)];
  }

  float& value(Tile tile, std::int64_t token, int feature) {
    return mesh_.at(tile, static_cast<int>(token / token_tile_), static_cast<int>(token % token_tile_),
                    feature % core_features_)[feature / core_features_];
  }

  void route() {
    const auto experts = static_cast<int>(moe_.experts.size());
    const Tile router = place_router(mesh_, moe_, core_features_, Axis::x);
    const Tile logits = mesh_.allocate("logits", token_tile_, experts, Buffers::two);
    mesh_.multiply_add(x_, router, logits, mesh::Operand::as_is);
    mesh_.all_reduce(logits, Axis::x, Reduction::sum, program_.all_reduce);
    chosen_.resize(slot(tokens_ * moe_.experts_per_token));
    weights_.resize(chosen_.size());
    mesh_.apply({.values = 3.0 * token_tile_ * experts}, [&](ValueMesh& values, int i) {
      for (int r = 0; r < token_tile_; ++r) {
        const std::int64_t token = std::int64_t{i} * token_tile_ + r;
        if (token >= tokens_) continue;
        std::vector<float> row(slot(experts));
        for (int e = 0; e < experts; ++e) row[slot(e)] = values.at(logits, i, r, e)[0];  // as in all columns
        const Choice choice = choose(row, moe_.experts_per_token);
        std::ranges::copy(choice.experts, chosen_.begin() + token * moe_.experts_per_token);
        std::ranges::copy(choice.weights, weights_.begin() + token * moe_.experts_per_token);
      }
    });
    mesh_.release(router);
    mesh_.release(logits);
    number_rows(experts);
  }

  // Each core counts its choices of each expert; all counts of a column are gathered along y, and each core adds those
  // of the rows above its own: the number that its first row has at the expert, and behind that how many there are.
  void number_rows(int experts) {
    mesh_.phase("offsets");
    const Tile counts = mesh_.allocate("rows of experts", 1, experts, Buffers::one);
    std::vector<Tile> all;
    all.reserve(static_cast<std::size_t>(mesh_.grid().rows));
    for (int row = 0; row < mesh_.grid().rows; ++row)
      all.push_back(mesh_.allocate("rows of experts of a row of cores", 1, experts, Buffers::one));
    const int k = moe_.experts_per_token, columns = mesh_.grid().columns;
    mesh_.apply({.values = 1.0 * token_tile_ * k}, [&](ValueMesh& values, int i) {
      const std::int64_t first = std::int64_t{i} * token_tile_, last = std::min(tokens_, first + token_tile_);
      for (std::int64_t choice = first * k; choice < last * k; ++choice) {
        float* count = values.at(counts, i, 0, chosen_[slot(choice)]);
        for (int j = 0; j < columns; ++j) ++count[j];
      }
    });
    mesh_.gather(counts, all, Axis::y);
    offsets_ = mesh_.allocate("offsets", 2, experts, Buffers::one);
    mesh_.apply({.values = 1.0 * mesh_.grid().rows * experts}, [&](ValueMesh& values, int i) {
      for (int e = 0; e < experts; ++e)
        for (int row = 0; row < mesh_.grid().rows; ++row)
          for (int j = 0; j < columns; ++j) {
            const float count = values.at(all[slot(row)], i, 0, e)[j];
            if (row < i) values.at(offsets_, i, 0, e)[j] += count;
            values.at(offsets_, i, 1, e)[j] += count;
          }
    });
    mesh_.release(counts);
    for (const Tile tile : all) mesh_.release(tile);
  }

  // Of the first row of row `i` of cores at an expert.
  int offset(int i, int expert) { return static_cast<int>(*mesh_.at(offsets_, i, 0, expert)); }
  // Rows that an expert gets.
  int rows_of(int expert) { return static_cast<int>(*mesh_.at(offsets_, 0, 1, expert)); }

  // Expert round * bands + b runs in band b. Its tokens are numbered and distributed over the band's places along y.
  void run_round(int round) {
    const int k = moe_.experts_per_token;
    const int experts = static_cast<int>(moe_.experts.size()), first = round * bands_.count;
    const int last = std::min(experts, first + bands_.count);
    int most = 0;
    for (int expert = first; expert < last; ++expert) most = std::max(most, rows_of(expert));
    if (most == 0) return;
    const int place_rows = mesh::tile_side(most, band_grid_.rows);
    const int core_rows = place_rows * band_grid_.tiles_along(Axis::y);

    std::vector<RowMove> there, back;
    for (int i = 0; i < mesh_.grid().rows; ++i) {
      std::vector<int> sent(slot(experts));  // by this row of cores
      const std::int64_t begin = std::int64_t{i} * token_tile_, end = std::min(tokens_, begin + token_tile_);
      for (std::int64_t choice = begin * k; choice < end * k; ++choice) {
        const int expert = chosen_[slot(choice)];
        if (expert < first || expert >= last) continue;
        const int n = offset(i, expert) + sent[slot(expert)]++;
        const RowMove home{.from_place = i,
                           .from_row = static_cast<int>(choice / k - begin),
                           .to_place = (expert - first) * bands_.height + n / core_rows,
                           .to_row = n % core_rows};
        there.push_back(home);
        back.push_back({.from_place = home.to_place,
                        .from_row = home.to_row,
                        .to_place = home.from_place,
                        .to_row = home.from_row * k + static_cast<int>(choice % k)});
      }
    }
    mesh_.phase("dispatch");
    const Tile arrived = mesh_.allocate("dispatched", core_rows, core_features_, Buffers::one);
    const Tile made = mesh_.allocate("expert's", core_rows, core_features_, Buffers::one);
    mesh_.exchange(x_, arrived, Axis::y, there);
    WaferCost slowest;  // bands work at the same time
    for (int band = 0; band < bands_.count; ++band) {
      const int expert = first + band;
      if (expert >= last || rows_of(expert) == 0) continue;
      const WaferCost cost = run_expert(moe_.experts[slot(expert)], band, place_rows, arrived, made);
      if (cost.cycles() > slowest.cycles()) slowest = cost;
    }
    for (const WaferCost::Part& part : slowest.breakdown)
      mesh_.add_cycles("experts: " + part.name, part.cycles, part.basis);
    mesh_.phase("combination");
    mesh_.exchange(made, back_, Axis::y, back);
    mesh_.release(arrived);
    mesh_.release(made);
  }

  // Between the mesh's tile and the band's. The cores are the same, so it takes no time.
  template <class Copy>
  void for_values(int band, Tile tile, Copy copy) {
    TimedMesh& own = *band_meshes_[slot(band)];
    const int wide = band_grid_.tiles_along(Axis::x), high = band_grid_.tiles_along(Axis::y);
    for (int py = 0; py < band_grid_.rows; ++py)
      for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < tile.columns; ++c) {
          float* row = own.at(tile, py, r, c);
          for (int px = 0; px < band_grid_.columns; ++px)
            copy(row[px], band * bands_.height + py / high, (py % high) * tile.rows + r, (px % wide) * tile.columns + c,
                 px / wide);
        }
  }

  WaferCost run_expert(const WaferExpert& expert, int band, int rows, Tile arrived, Tile made) {
    TimedMesh& own = *band_meshes_[slot(band)];
    own.phase("expert");
    const Tile x = own.allocate("tokens", rows, hidden_.tile, Buffers::two);
    for_values(band, x, [&](float& to, int i, int r, int c, int j) { to = mesh_.at(arrived, i, r, c)[j]; });
    const auto product = [&](Tile a, Placement placement, const Weight& weight, const WeightPlacement& where) {
      const Tile w = place_weight(own, weight, where);  // counts as the second buffer of the placed weight
      own.place_skewed(w, Axis::y);
      const Tile y = own.allocate("product", rows, w.columns, Buffers::two);
      mesh_gemm(own, a, w, y, {.a = placement, .b = Placement::aligned});
      own.settle();
      own.release(w);
      return y;
    };
    const Tile gate = product(x, Placement::natural, expert.gate_up, {.in = hidden_, .out = intermediate_});
    const Tile up = product(x, Placement::aligned, expert.gate_up,
                            {.in = hidden_, .out = intermediate_, .first_row = moe_.intermediate});
    swiglu(own, gate, up, gate);
    const Tile y = product(gate, Placement::natural, expert.down, {.in = intermediate_, .out = hidden_});
    for_values(band, y, [&](float& from, int i, int r, int c, int j) { mesh_.at(made, i, r, c)[j] = from; });
    for (const Tile tile : {x, gate, up, y}) own.release(tile);
    return own.take_cost();
  }

  std::vector<float> combine() {
    const int k = moe_.experts_per_token;
    std::vector<float> y(slot(tokens_ * moe_.hidden));
    mesh_.apply({.values = 1.0 * token_tile_ * k * core_features_}, [&](ValueMesh& values, int i) {
      for (int r = 0; r < token_tile_; ++r) {
        const std::int64_t token = std::int64_t{i} * token_tile_ + r;
        for (int f = 0; token < tokens_ && f < moe_.hidden; ++f)
          for (int choice = 0; choice < k; ++choice)
            y[slot(token * moe_.hidden + f)] +=
                weights_[slot(token * k + choice)] *
                values.at(back_, i, r * k + choice, f % core_features_)[f / core_features_];
      }
    });
    return y;
  }

  const WaferMoe& moe_;
  WaferProgram program_;
  std::int64_t tokens_;
  ExpertBands bands_;
  Grid band_grid_;
  Partition hidden_, intermediate_;  // over the places of a band
  TimedMesh mesh_;
  int core_features_, token_tile_;  // per core of the whole mesh
  std::vector<std::unique_ptr<TimedMesh>> band_meshes_;
  Tile x_, back_, offsets_;
  std::vector<int> chosen_;     // [tokens, experts_per_token]
  std::vector<float> weights_;  // likewise
};

}  // namespace

WaferMoeResult wafer_moe_prefill(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                 const WaferProgram& program, ThreadPool& pool) {
  check_moe(moe, x);
  return MoePrefill(moe, cores, std::ssize(x) / moe.hidden, program, pool).run(x);
}

WaferMoeResult wafer_moe_decode(const WaferMoe& moe, WaferMesh cores, std::span<const float> x,
                                const WaferProgram& program, ThreadPool& pool) {
  check_moe(moe, x);
  require(std::ssize(x) == moe.hidden, "decode of {} values, a token has {}", x.size(), moe.hidden);
  TimedMesh mesh(program.device, Grid::of_cores(cores), pool);
  const Partition hidden = even_partition(moe.hidden, cores.height),
                  inner = even_partition(moe.intermediate, cores.width);
  mesh.phase("experts of decode");
  mesh.hold("experts", kValueBytes * 3 * hidden.tile * inner.tile * static_cast<double>(moe.experts.size()));
  const Tile state = place_vector(mesh, x.data(), hidden, Axis::y);
  const auto experts = static_cast<int>(moe.experts.size());
  const Tile router = place_router(mesh, moe, hidden.tile, Axis::y);
  const Tile logits = mesh.allocate("logits", 1, experts, Buffers::two);
  mesh_gemv(mesh, mesh::GemvTiles{.x = state, .b = router, .y = logits}, Axis::y, program.all_reduce);
  mesh.settle();
  std::vector<float> row(slot(experts));
  for (int e = 0; e < experts; ++e) row[slot(e)] = mesh.at(logits, 0, 0, e)[0];
  const Choice choice = choose(row, moe.experts_per_token);
  mesh.apply({.values = 3.0 * experts}, [](auto&&...) {});

  const Tile y = mesh.allocate("sum", 1, hidden.tile, Buffers::two);
  for (std::size_t i = 0; i < choice.experts.size(); ++i) {
    const WaferExpert& expert = moe.experts[slot(choice.experts[i])];
    const auto product = [&](const Weight& weight, std::int64_t first_row) {
      const Tile w = place_weight(mesh, weight, {.in = hidden, .out = inner, .first_row = first_row});
      const Tile result = mesh.allocate("product", 1, inner.tile, Buffers::two);
      mesh_gemv(mesh, mesh::GemvTiles{.x = state, .b = w, .y = result}, Axis::y, program.all_reduce);
      mesh.settle();
      mesh.release(w);
      return result;
    };
    const Tile gate = product(expert.gate_up, 0), up = product(expert.gate_up, moe.intermediate);
    swiglu(mesh, gate, up, gate);
    mesh.apply({.values = 1.0 * inner.tile}, [&](ValueMesh& values, int line) {
      for (int c = 0; c < inner.tile; ++c)
        for (int j = 0; j < cores.width; ++j) values.at(gate, line, 0, c)[j] *= choice.weights[i];
    });
    const Tile down = place_weight(mesh, expert.down, {.in = inner, .out = hidden, .in_axis = Axis::x});
    mesh.multiply_vector(gate, down, y);  // adds to the output of the previous expert
    mesh.settle();
    for (const Tile tile : {gate, up, down}) mesh.release(tile);
  }
  mesh.all_reduce(y, Axis::x, Reduction::sum, program.all_reduce);
  WaferMoeResult result{.y = std::vector<float>(x.size()), .experts = choice.experts, .cost = mesh.take_cost()};
  for (int f = 0; f < moe.hidden; ++f) result.y[slot(f)] = *mesh.at(y, f / hidden.tile, 0, f % hidden.tile);
  return result;
}

}  // namespace heddle

#include "cli/bench/sequence_figures.h"

#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

// An attention layer that the paper times whole sampling steps of. Tokens include the text's: 512 of Flux, 226 of
// CogVideoX. The paper's CogVideoX has 24 heads.
struct SequenceWorkload {
  std::string name;
  int num_heads, head_dim;
  std::int64_t num_tokens;
  int batch = 1;
};
const SequenceWorkload kSequenceWorkloads[] = {{"flux 3072", 24, 128, 36864 + 512},
                                               {"flux 4096", 24, 128, 65536 + 512},
                                               {"cogvideox 20 s", 24, 64, 167280 + 226},
                                               {"cogvideox 40 s", 24, 64, 330480 + 226}};
constexpr SequenceStrategy kCompared[] = {SequenceStrategy::usp, SequenceStrategy::tas, SequenceStrategy::torus,
                                          SequenceStrategy::one_sided};

class PredictedFigure {
 public:
  explicit PredictedFigure(const SequenceRateTable& rates) : rates_(rates) {}

  // With a degree, or with that of gcd_rule().
  void add(const SequenceWorkload& workload, const Placement& placement, std::optional<int> degree = {}) {
    const SequencePlan plan = planned(workload, placement, degree);
    for (const SequenceStrategy strategy : kCompared) add_row(workload, placement, plan.of(strategy));
  }
  void add_fastest(const SequenceWorkload& workload, const Placement& placement) {
    const SequencePlan plan = planned(workload, placement, {});
    for (const SequenceStrategy strategy : kCompared) add_row(workload, placement, plan.fastest_of(strategy));
  }

  std::vector<FigureRow> rows;

 private:
  SequencePlan planned(const SequenceWorkload& workload, const Placement& placement, std::optional<int> degree) const {
    return plan_sequence_attention({.placement = placement,
                                    .num_heads = workload.num_heads,
                                    .head_dim = workload.head_dim,
                                    .num_tokens = workload.num_tokens,
                                    .batch = workload.batch,
                                    .degree = degree,
                                    .rates = rates_.of(workload.head_dim)});
  }
  void add_row(const SequenceWorkload& workload, const Placement& placement, const SequenceForecast& of) {
    rows.push_back({.layer = workload.name,
                    .placement = placement,
                    .strategy = of.strategy,
                    .mesh = of.mesh,
                    .seconds = of.timeline.seconds,
                    .exposed_seconds = of.timeline.exposed_seconds,
                    .counted_elements = of.counted_elements,
                    .measured = {}});
  }

  const SequenceRateTable& rates_;
};

}  // namespace

std::vector<FigureRow> predicted_figure(int figure, const SequenceRateTable& rates) {
  PredictedFigure result(rates);
  if (figure == 9) {
    for (const int head_dim : {32, 64, 128}) {
      const auto add = [&](int thousands, int batch, const std::string& name) {
        result.add_fastest({name, 24, head_dim, std::int64_t{1024} * thousands, batch}, {4, 8});
      };
      for (const int thousands : {96, 128, 160, 192})
        add(thousands, 1, fmt::format("D {}, {}k tokens", head_dim, thousands));
      for (const int batch : {2, 4}) add(96, batch, fmt::format("D {}, 96k tokens, batch {}", head_dim, batch));
    }
    return std::move(result.rows);
  }
  for (const SequenceWorkload& workload : kSequenceWorkloads) {
    if (figure == 7)
      for (const int machines : {2, 3, 4}) result.add_fastest(workload, {machines, 8});
    if (figure == 8)
      for (const int machines : {3, 4})
        for (int degree = 1; degree <= workload.num_heads; ++degree)
          if (workload.num_heads % degree == 0 && machines * 8 % degree == 0)
            result.add(workload, {machines, 8}, degree);
    if (figure == 10) result.add(workload, {4, 8});
  }
  return std::move(result.rows);
}

}  // namespace heddle

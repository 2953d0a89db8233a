#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"

#include <memory>
#include <utility>

#include "base/trace.h"

namespace heddle {

LinearReduceScatter::LinearReduceScatter(Fabric& fabric, Ranks team, const PartialLimits& limits)
    : partials_(fabric, std::move(team), limits, "linear_reduce_scatter") {}

void LinearReduceScatter::operator()(const LinearReduceScatterParams& params, const Lane& lane) {
  const PartialProduct product{params.rows, params.x, params.weight};
  const int rank = partials_.peers().rank;
  partials_.check(product, params.y, params.rows.ranks > rank ? params.rows.count(rank) : 0, lane,
                  "linear_reduce_scatter");
  if (params.x.rows == 0 || lane.dry_run != nullptr) return;
  const Span span(lane.stream, "linear");
  if (partials_.on_gpu()) return partials_.enqueue_on_gpu(product, params.y, {}, lane);
  lane.stream.enqueue([this, call = std::make_shared<const PartialProduct>(product), y = params.y](ThreadPool& pool) {
    if (!partials_.push(*call, pool)) return;
    const int own = partials_.peers().rank;
    for (int tile = 0; tile < partials_.tiles(*call, own); ++tile)
      if (!partials_.sum(tile, rows_of(y, partials_.first_row(tile), partials_.rows(*call, own, tile)))) return;
  });
}

}  // namespace heddle

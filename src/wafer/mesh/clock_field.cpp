#include "wafer/mesh/clock_field.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "wafer/mesh/clock_field.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::mesh::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::CappedTag<Ticks, 16>;
using Vector = hn::Vec<Lanes>;

HWY_INLINE Vector load(const Ticks* from) {
  return hn::LoadU(Lanes(), from);
}

HWY_INLINE Vector set(Ticks value) {
  return hn::Set(Lanes(), value);
}

HWY_INLINE Vector max3(Vector a, Vector b, Vector c) {
  return hn::Max(hn::Max(a, b), c);
}

// In place: the values that are read lie ahead of those that are written.
HWY_INLINE void shift_row(Ticks* row, const Ticks* next, const ShiftWeights& weights, Ticks x_weight, int height) {
  const Vector compute = set(weights.compute), from_next = set(x_weight);
  const Ticks* y_weight = weights.y.data();
  row[height] = row[0];
  for (int y = 0; y < height; y += static_cast<int>(hn::Lanes(Lanes()))) {
    const Vector own = hn::Add(load(row + y), compute);
    const Vector along_y = hn::Add(load(row + y + 1), load(y_weight + y));
    const Vector along_x = hn::Add(load(next + y), from_next);
    hn::StoreU(max3(own, along_y, along_x), Lanes(), row + y);
  }
}

// Step s of row x needs step s - 1 of rows x and x + 1 only. All steps therefore follow each other down the rows while
// these are in the L1 cache. Copied ghost rows close the ring; each step uses up one of them.
void shift_field(ClockField& field, const ShiftWeights& weights, int steps) {
  const int width = field.width(), height = field.height();
  for (int x = 0; x < steps; ++x) std::copy_n(field.row(x), height, field.row(width + x));
  for (int wave = 0; wave <= width + steps - 2; ++wave)
    for (int step = 0; step < steps; ++step) {
      const int x = wave - step;
      if (x < 0 || x > width + steps - 2 - step) continue;
      const Ticks x_weight = weights.x[static_cast<std::size_t>(x < width ? x : x - width)];
      shift_row(field.row(x), field.row(x + 1), weights, x_weight, height);
    }
}

// In place, except for arrivals along x: those of the step before lie in another row.
struct RendezvousRow {
  Ticks* clock;
  const Ticks *next, *taken_x;
  Ticks *arrived_x, *arrived_y;
  Ticks compute, x_weight;
};

HWY_INLINE void rendezvous_row(const RendezvousRow& row, const Ticks* y_weights, int height) {
  const Vector compute = set(row.compute), x_weight = set(row.x_weight);
  const int step = static_cast<int>(hn::Lanes(Lanes()));
  Ticks *clock = row.clock, *arrived_y = row.arrived_y;
  clock[height] = clock[0];
  arrived_y[-1] = arrived_y[height - 1];
  Vector taken_y = load(arrived_y - 1);
  for (int y = 0; y < height; y += step) {
    const Vector taken_after = load(arrived_y + y + step - 1);  // read before it is overwritten
    const Vector along_x = hn::Add(hn::Max(load(row.next + y), load(row.taken_x + y)), x_weight);
    const Vector along_y = hn::Add(hn::Max(load(clock + y + 1), taken_y), load(y_weights + y));
    hn::StoreU(along_x, Lanes(), row.arrived_x + y);
    hn::StoreU(along_y, Lanes(), arrived_y + y);
    hn::StoreU(max3(hn::Add(load(clock + y), compute), along_x, along_y), Lanes(), clock + y);
    taken_y = taken_after;
  }
}

// As shift_field, but a row needs the previous step of both neighbours, so ghost rows close the ring at both ends.
// Arrivals along x alternate between the field and a few extra rows, as many as the steps of a wave touch.
void rendezvous_field(ClockField& field, Rendezvous& arrived, const ShiftWeights& weights, int steps) {
  constexpr int kRows = ClockField::kGhostRows + 1;
  const int width = field.width(), height = field.height();
  for (ClockField* f : {&field, &arrived.x, &arrived.y})
    for (int x = 0; x < steps; ++x) {
      std::copy_n(f->row(x), height, f->row(width + x));
      std::copy_n(f->row(width - 1 - x), height, f->row(-1 - x));
    }
  ClockField between(kRows, height);
  const auto odd_row = [&](int x) { return between.row((x + kRows) % kRows); };
  for (int wave = 1 - steps; wave <= width + steps - 1; ++wave) {
    for (int step = 0; step < steps; ++step) {
      const int x = wave - step, first = step + 1 - steps;
      if (x < first || x > width - first - 1) continue;
      const bool is_even = step % 2 == 0;
      rendezvous_row({.clock = field.row(x),
                      .next = field.row(x + 1),
                      .taken_x = is_even ? arrived.x.row(x - 1) : odd_row(x - 1),
                      .arrived_x = is_even ? odd_row(x) : arrived.x.row(x),
                      .arrived_y = arrived.y.row(x),
                      .compute = weights.compute,
                      .x_weight = weights.x[static_cast<std::size_t>((x + width) % width)]},
                     weights.y.data(), height);
    }
    if (const int done = wave - steps; steps % 2 != 0 && done >= 0 && done < width)  // rows that no later step reads
      std::copy_n(odd_row(done), height, arrived.x.row(done));
  }
}

void broadcast_field(ClockField& field, const BroadcastWeights& weights) {
  const Vector cost = set(weights.cost);
  for (int x = 0; x < field.width(); ++x) {
    Ticks* row = field.row(x);
    const Vector x_way = set(weights.x_way[static_cast<std::size_t>(x)]);
    const Vector y_start = set(weights.y_start[static_cast<std::size_t>(x)]);
    for (int y = 0; y < field.height(); y += static_cast<int>(hn::Lanes(Lanes()))) {
      const Vector along_x = hn::Add(load(weights.x_start.data() + y), x_way);
      const Vector along_y = hn::Add(load(weights.y_way.data() + y), y_start);
      hn::StoreU(hn::Add(max3(load(row + y), along_x, along_y), cost), Lanes(), row + y);
    }
  }
}

void chain_field(ClockField& field, const ClockField& sent, ClockField& sent_next, const ShiftWeights& weights,
                 const ChainWeights& chain) {
  const int width = field.width(), height = field.height();
  const Vector stage = set(chain.stage), occupied = set(chain.occupied), freed = set(chain.freed),
               compute = set(weights.compute);
  const auto begins = [&](const Ticks* clock, const Ticks* before)
                          HWY_ATTR { return hn::Max(hn::Add(load(clock), compute), hn::Add(load(before), occupied)); };
  for (int k = 0; k < width; ++k) {
    const int x = chain.order[static_cast<std::size_t>(k)];
    const Ticks* from = k > 0 ? sent_next.row(chain.order[static_cast<std::size_t>(k - 1)]) : nullptr;
    for (int y = 0; y < height; y += static_cast<int>(hn::Lanes(Lanes()))) {
      Vector at = begins(field.row(x) + y, sent.row(x) + y);
      if (from != nullptr) at = hn::Max(at, hn::Add(load(from + y), stage));
      hn::StoreU(at, Lanes(), sent_next.row(x) + y);
    }
  }
  // On the way back: beyond the root the sum comes from the end of the line; at the root it comes from both sides.
  for (int k = width - 1; k >= 0; --k) {
    const int x = chain.order[static_cast<std::size_t>(k)];
    const Ticks* from = k + 1 < width ? sent_next.row(chain.order[static_cast<std::size_t>(k + 1)]) : nullptr;
    Ticks* row = field.row(x);
    row[height] = row[0];
    for (int y = 0; y < height; y += static_cast<int>(hn::Lanes(Lanes()))) {
      const Ticks* before = sent.row(x) + y;
      Ticks* to = sent_next.row(x) + y;
      Vector back = begins(row + y, before);
      if (from != nullptr) back = hn::Max(back, hn::Add(load(from + y), stage));
      const Vector forth = load(to), root = load(chain.root.data() + y), place = set(k);
      const Vector at =
          hn::IfThenElse(hn::Gt(place, root), back, hn::IfThenElse(hn::Eq(place, root), hn::Max(back, forth), forth));
      hn::StoreU(at, Lanes(), to);
      const Vector along_y = hn::Add(load(row + y + 1), load(weights.y.data() + y));
      hn::StoreU(max3(hn::Add(load(row + y), compute), along_y, hn::Add(load(before), freed)), Lanes(), row + y);
    }
  }
}

}  // namespace heddle::mesh::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::mesh {
namespace {

HWY_EXPORT(shift_field);
HWY_EXPORT(rendezvous_field);
HWY_EXPORT(broadcast_field);
HWY_EXPORT(chain_field);

}  // namespace

ClockField::ClockField(int width, int height)
    : width_(width),
      height_(height),
      stride_(static_cast<std::ptrdiff_t>(lanes(height)) + 2 * kPad),
      buffer_(static_cast<std::size_t>(width + 2 * kGhostRows) * static_cast<std::size_t>(stride_) * sizeof(Ticks)) {}

Extrema extrema(const ClockField& field) {
  Extrema found{*field.row(0), *field.row(0)};
  for (int x = 0; x < field.width(); ++x) {
    const auto [least, most] = std::minmax_element(field.row(x), field.row(x) + field.height());
    found = {std::min(found.least, *least), std::max(found.most, *most)};
  }
  return found;
}

Extrema difference(const ClockField& a, const ClockField& b) {
  Extrema found{*a.row(0) - *b.row(0), *a.row(0) - *b.row(0)};
  for (int x = 0; x < a.width() && found.least == found.most; ++x)
    for (int y = 0; y < a.height(); ++y) {
      const Ticks d = a.row(x)[y] - b.row(x)[y];
      found = {std::min(found.least, d), std::max(found.most, d)};
    }
  return found;
}

void copy(const ClockField& from, ClockField& to) {
  for (int x = 0; x < from.width(); ++x) std::copy_n(from.row(x), from.height(), to.row(x));
}

void add(ClockField& field, Ticks ticks) {
  for (int x = 0; x < field.width(); ++x)
    for (int y = -1; y < field.padded_height(); ++y) field.row(x)[y] = std::max(field.row(x)[y] + ticks, kNever);
}

void fill(ClockField& field, Ticks ticks) {
  for (int x = 0; x < field.width(); ++x) std::fill(field.row(x) - 1, field.row(x) + field.padded_height(), ticks);
}

void multiply(ClockField& field, double factor) {
  for (int x = 0; x < field.width(); ++x)
    for (int y = -1; y < field.padded_height(); ++y)
      field.row(x)[y] = static_cast<Ticks>(std::lround(field.row(x)[y] * factor));
}

void shift_steps(ClockField& field, const ShiftWeights& weights, int steps) {
  require(0 < steps && steps <= ClockField::kGhostRows && steps <= field.width(), "{} steps at once", steps);
  HWY_DYNAMIC_DISPATCH(shift_field)(field, weights, steps);
}

Rendezvous::Rendezvous(int width, int height) : x(width, height), y(width, height) {
  fill(x, kNever);
  fill(y, kNever);
}

void rendezvous_steps(ClockField& field, Rendezvous& arrived, const ShiftWeights& weights, int steps) {
  require(0 < steps && steps <= ClockField::kGhostRows && steps <= field.width(), "{} steps at once", steps);
  HWY_DYNAMIC_DISPATCH(rendezvous_field)(field, arrived, weights, steps);
}

void broadcast_step(ClockField& field, const BroadcastWeights& weights) {
  HWY_DYNAMIC_DISPATCH(broadcast_field)(field, weights);
}

void chain_step(ClockField& field, const ClockField& sent, ClockField& sent_next, const ShiftWeights& weights,
                const ChainWeights& chain) {
  HWY_DYNAMIC_DISPATCH(chain_field)(field, sent, sent_next, weights, chain);
}

}  // namespace heddle::mesh
#endif  // HWY_ONCE

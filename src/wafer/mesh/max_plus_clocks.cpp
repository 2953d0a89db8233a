// Keeps the clocks of the max-plus mesh within 32 bits, and has what moves all clocks at once. max_plus_mesh.cpp has
// the operations of programs.
#include <algorithm>
#include <cmath>

#include "wafer/mesh/max_plus_mesh.h"

namespace heddle::mesh {
namespace {

constexpr double kRoom = 1 << 28;  // ticks; half of a clock's range, as a reserve for what no bound foresees

}  // namespace

std::vector<ClockField*> MaxPlusMesh::arrivals() {
  std::vector<ClockField*> fields;
  if (rendezvous_) fields = {&rendezvous_->x, &rendezvous_->y};
  if (sent_) fields.push_back(&sent_->first);
  return fields;
}

void MaxPlusMesh::delay_lines(const std::vector<LineDelays>& delays) {
  double longest = 0;
  for (const LineDelays& d : delays) longest = std::max(longest, *std::ranges::max_element(d.cycles));
  make_room(longest);
  std::vector<Ticks> x_end(static_cast<std::size_t>(clock_.height()), kNever),
      y_end(static_cast<std::size_t>(clock_.width()), kNever);
  for (const LineDelays& d : delays) {
    std::vector<Ticks>& end = d.axis == Axis::x ? x_end : y_end;
    const std::vector<Ticks> latest = latest_of_lines(d.axis);
    for (std::size_t line = 0; line < end.size(); ++line)
      end[line] = std::max(end[line], latest[line] + ticks(d.cycles[line]));
  }
  for (int x = 0; x < clock_.width(); ++x)
    for (int y = 0; y < clock_.height(); ++y)
      clock_.row(x)[y] = std::max(x_end[static_cast<std::size_t>(y)], y_end[static_cast<std::size_t>(x)]);
  if (options_.sync == WaferSync::barrier) all_at_the_latest();
  rebase();
}

std::vector<Ticks> MaxPlusMesh::latest_of_lines(Axis axis) const {
  std::vector<Ticks> latest(static_cast<std::size_t>(grid_.cores_along(across(axis))), kNever);
  for (int x = 0; x < clock_.width(); ++x) {
    const Ticks* row = clock_.row(x);
    if (axis == Axis::y)
      latest[static_cast<std::size_t>(x)] = *std::max_element(row, row + clock_.height());
    else
      for (std::size_t y = 0; y < latest.size(); ++y) latest[y] = std::max(latest[y], row[y]);
  }
  return latest;
}

void MaxPlusMesh::all_at_the_latest() {
  fill(clock_, extrema(clock_).most);
}

Ticks MaxPlusMesh::ticks(double cycles) const {
  return static_cast<Ticks>(std::lround(cycles * scale_));
}

void MaxPlusMesh::make_room(double cycles) {
  if (bound_ + cycles * scale_ <= kRoom) return;
  rebase();
  while (bound_ + cycles * scale_ > kRoom) scale_by(0.5);
}

void MaxPlusMesh::rebase() {
  const Extrema now = extrema(clock_);
  base_ += now.least / scale_;
  add(clock_, -now.least);
  for (ClockField* arrival : arrivals()) add(*arrival, -now.least);
  bound_ = now.most - now.least;
}

void MaxPlusMesh::scale_by(double factor) {
  scale_ *= factor;
  bound_ = std::ceil(bound_ * factor);
  multiply(clock_, factor);
  for (ClockField* arrival : arrivals()) multiply(*arrival, factor);
}

}  // namespace heddle::mesh

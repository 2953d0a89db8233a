// The clocks of all cores of a mesh, in ticks, and max-plus recurrences that advance them by a step of a program. Row x
// holds the cores at ring position x along the x axis; index y in it is their ring position along y. Both indices wrap
// around.
//
// In every recurrence T is the field before the step and T' after it; a weight of kNever disables a term.
#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"

namespace heddle::mesh {

using Ticks = std::int32_t;

inline constexpr Ticks kNever = -(1 << 29);
inline constexpr Ticks kMostTicks = 1 << 29;  // upper bound of clocks, so that clock + weight does not overflow

// width x height clocks, zero at first. Rows are padded on both sides: index -1 and height may be written.
class ClockField {
 public:
  static constexpr int kGhostRows = 8;  // before the first and behind the last row, for steps that are taken together

  ClockField(int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  int padded_height() const { return static_cast<int>(lanes(height_)) + 1; }  // the range that recurrences may write
  Ticks* row(int x) { return data() + (x + kGhostRows) * stride_ + kPad; }
  const Ticks* row(int x) const { return const_cast<ClockField*>(this)->row(x); }

  // Row length in whole vectors; weights by y have this length.
  static std::size_t lanes(int height) { return static_cast<std::size_t>(height + kPad - 1) / kPad * kPad; }

 private:
  static constexpr std::ptrdiff_t kPad = 16;  // the most lanes that a vector may have
  Ticks* data() { return reinterpret_cast<Ticks*>(buffer_.data()); }

  int width_, height_;
  std::ptrdiff_t stride_;
  Buffer buffer_;
};

struct Extrema {
  Ticks least, most;
};
Extrema extrema(const ClockField& field);
// Extrema of a - b.
Extrema difference(const ClockField& a, const ClockField& b);
void copy(const ClockField& from, ClockField& to);
// Values saturate at kNever.
void add(ClockField& field, Ticks ticks);
void fill(ClockField& field, Ticks ticks);
void multiply(ClockField& field, double factor);

// T'[x][y] = max(T[x][y] + compute, T[x + 1][y] + x_weight[x], T[x][y + 1] + y_weight[y]), `steps` times, at most
// kGhostRows and width.
struct ShiftWeights {
  Ticks compute = 0;
  std::vector<Ticks> x, y;  // y: lanes(height) long
};
void shift_steps(ClockField& field, const ShiftWeights& weights, int steps);

// Two buffers and rendezvous: a tile leaves when the tile that its receiver sent from the destination buffer in the
// step before has arrived. A are arrivals:
// Ax'[x][y] = max(T[x + 1][y], Ax[x - 1][y]) + x_weight[x], Ay' alike, T' = max(T + compute, Ax', Ay'), `steps` times,
// at most kGhostRows and width.
struct Rendezvous {
  Rendezvous(int width, int height);  // nothing has arrived
  ClockField x, y;
};
void rendezvous_steps(ClockField& field, Rendezvous& arrived, const ShiftWeights& weights, int steps);

// T'[x][y] = max(T[x][y], x_start[y] + x_way[x], y_start[x] + y_way[y]) + cost. The vectors by y are lanes(height)
// long.
struct BroadcastWeights {
  Ticks cost = 0;
  std::vector<Ticks> x_start, x_way, y_start, y_way;
};
void broadcast_step(ClockField& field, const BroadcastWeights& weights);

// A sum along x, from both ends of the line to the root of each y, one stage per core, overlapped with a step of
// shifts. `sent` is the time at which a core passes on its sum; order[k] is the row of the line's k-th core, root[y] a
// k.
//   sent'[k] = max(sent'[k - 1] + stage, T[k] + compute, sent[k] + occupied)   before the root; after it from k + 1
//   T'[x][y] = max(T[x][y] + compute, T[x][y + 1] + y_weight[y], sent[x][y] + freed)
struct ChainWeights {
  Ticks stage = 0, occupied = 0, freed = 0;
  std::vector<int> order;
  std::vector<Ticks> root;  // lanes(height) long
};
void chain_step(ClockField& field, const ClockField& sent, ClockField& sent_next, const ShiftWeights& weights,
                const ChainWeights& chain);

}  // namespace heddle::mesh

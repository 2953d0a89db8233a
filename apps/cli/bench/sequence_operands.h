// Random operands of a layer that ranks share. An element follows from its place in the whole sequence, so each rank can
// say what the others have, and check its rows of y by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/stream.h"
#include "parallel/sequence/memory.h"

namespace heddle {

class SequenceOperands {
 public:
  // The tokens of the team's rank `place`, in the memory of the stream's device.
  SequenceOperands(const SequenceShape& shape, int place, Stream& stream);

  const void* q() const { return q_.data(); }
  const void* k() const { return k_.data(); }
  const void* v() const { return v_.data(); }
  void* y() { return y_.data(); }
  float scale() const;

  // Forgets y, in stream order.
  void clear_output(Stream& stream);

  // The relative_error() of some rows of y, of the first head and the last one, against attention of the whole sequence
  // in float64. Waits for the stream.
  double error(Stream& stream);

 private:
  enum class Which : std::uint8_t { q, k, v };

  Buffer on_device(Which which, Stream& stream) const;
  // One head of these tokens of the whole sequence, rounded to the shape's dtype.
  std::vector<float> head_of(Which which, int batch, int head, const std::vector<std::int64_t>& tokens) const;
  std::vector<float> wanted() const;
  std::uint64_t index(int batch, std::int64_t token, int head) const;
  std::size_t elements() const;

  SequenceShape shape_;
  std::int64_t first_, count_;  // this rank's tokens
  Buffer q_, k_, v_, y_;
  std::optional<std::vector<float>> wanted_;  // of the rows that are checked
};

}  // namespace heddle

// What the cases of several operators need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/dtype.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "base/thread_pool.h"

namespace heddle {

inline constexpr std::int64_t kCheckedTokens = 16;

inline double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.rows * tensor.columns) * static_cast<double>(size_of(tensor.dtype));
}

// Runs an operator on the CPU.
template <class Call>
void on_cpu(Call&& call) {
  ThreadPool pool(1);
  Stream stream(pool);
  call(stream);
  stream.synchronize();
}

// The values at these places.
template <class To, class From>
std::vector<To> values_at(const std::vector<From>& values, const std::vector<std::int64_t>& places) {
  std::vector<To> taken;
  taken.reserve(places.size());
  for (const std::int64_t place : places) taken.push_back(values[static_cast<std::size_t>(place)]);
  return taken;
}

// Roundings to the coarsest of these dtypes, each of the operand and of the result, with some room.
inline double roundings(std::initializer_list<DType> dtypes, double count = 4) {
  double unit = 1e-6;
  for (const DType dtype : dtypes) unit = std::max(unit, unit_roundoff(dtype));
  return count * unit;
}

}  // namespace heddle

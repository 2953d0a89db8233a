#include "wafer/mesh/value_tiles.h"

#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace heddle::mesh {

ValueArray::ValueArray(std::int64_t count) : size_(count) {
  if (count == 0) return;
  const auto bytes = round_up(static_cast<std::size_t>(count + 16) * sizeof(float), std::size_t{64});
  auto* data = static_cast<float*>(std::aligned_alloc(64, bytes));
  if (data == nullptr) throw_error<Failure>("out of memory: {} bytes for values on a mesh", bytes);
  std::memset(data, 0, bytes);
  data_.reset(data);
}

void ValueArray::Free::operator()(float* p) const {
  std::free(p);
}

}  // namespace heddle::mesh

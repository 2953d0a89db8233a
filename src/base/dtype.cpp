#include "base/dtype.h"

#include <cstring>

namespace heddle {
namespace {

template <class T>
T from_float(float x);
template <>
float from_float<float>(float x) {
  return x;
}
template <>
bfloat16 from_float<bfloat16>(float x) {
  return to_bfloat16(x);
}
template <>
float16 from_float<float16>(float x) {
  return to_float16(x);
}

template <class From, class To>
void convert_elements(const void* source, void* destination, std::size_t count) {
  // Tensors inside a file may be unaligned, so elements are copied with memcpy.
  const auto* in = static_cast<const std::byte*>(source);
  auto* out = static_cast<std::byte*>(destination);
  for (std::size_t i = 0; i < count; ++i) {
    From element;
    std::memcpy(&element, in + i * sizeof(From), sizeof(From));
    const To converted = from_float<To>(to_float(element));
    std::memcpy(out + i * sizeof(To), &converted, sizeof(To));
  }
}

template <class From>
void convert_from(const void* source, void* destination, DType to, std::size_t count) {
  switch (to) {
    case DType::float32:
      return convert_elements<From, float>(source, destination, count);
    case DType::bfloat16:
      return convert_elements<From, bfloat16>(source, destination, count);
    case DType::float16:
      return convert_elements<From, float16>(source, destination, count);
  }
}

}  // namespace

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
  }
  return "unknown";
}

std::optional<DType> dtype_named(std::string_view name) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

void convert(const void* source, DType from, void* destination, DType to, std::size_t count) {
  if (from == to) {
    if (count > 0) std::memcpy(destination, source, count * size_of(from));
    return;
  }
  switch (from) {
    case DType::float32:
      return convert_from<float>(source, destination, to, count);
    case DType::bfloat16:
      return convert_from<bfloat16>(source, destination, to, count);
    case DType::float16:
      return convert_from<float16>(source, destination, to, count);
  }
}

}  // namespace heddle

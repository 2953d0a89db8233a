#include "weights/synthetic_values.h"

#include <algorithm>
#include <array>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weights/synthetic_values.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {
namespace {  // internal linkage: with -fPIC the compiler could not inline calls in loops otherwise

// Loops of constant length, which the compiler vectorises (this file is compiled with -O3 for that). Results are equal
// for all instruction sets because nothing is fused or reordered.
constexpr std::size_t kBlock = 1024;

// synthetic_value() of one block.
void fill_floats(const SyntheticTensor& tensor, std::uint64_t first, float* values) {
  // Local copies: the compiler can then assume that the stores do not change them.
  const SyntheticTensor t = tensor;
  const auto low = static_cast<std::uint32_t>(first);
  const std::uint32_t start = low * 0x9e3779b1u + t.key.add + static_cast<std::uint32_t>(first >> 32) * 0xc2b2ae35u;
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    std::uint32_t h = i * 0x9e3779b1u + start;
    h = (h ^ (h >> 16)) * 0x85ebca6bu + t.key.mix;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    h ^= h >> 16;
    const std::int32_t n = 2 * (static_cast<std::int32_t>(h & 0xffffu) - static_cast<std::int32_t>(h >> 16)) + 1;
    values[i] = t.offset + t.scale * static_cast<float>(n);
  }
}

// to_bfloat16 for finite numbers.
std::uint16_t rounded_to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// to_float16 for numbers below 65504, without a branch.
std::uint16_t rounded_to_float16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | (magnitude < 0x38800000u ? small : normal));
}

void store_bfloat16(const float* values, std::uint16_t* out) {
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = rounded_to_bfloat16(values[i]);
}
void store_float16(const float* values, std::uint16_t* out) {
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = rounded_to_float16(values[i]);
}

}  // namespace

void fill(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType dtype, void* destination) {
  std::array<float, kBlock> values;
  std::array<std::uint16_t, kBlock> rounded;
  for (std::size_t done = 0; done < count;) {
    // A block must not cross a multiple of 2^32, where the high half of the counter changes.
    const std::uint64_t index = first + done;
    const std::uint64_t to_boundary = (std::uint64_t{1} << 32) - (index & 0xffffffffu);
    const std::size_t size = std::min({kBlock, count - done, static_cast<std::size_t>(to_boundary)});
    fill_floats(tensor, index, values.data());
    if (dtype == DType::float32) {
      std::copy_n(values.data(), size, static_cast<float*>(destination) + done);
    } else {
      dtype == DType::bfloat16 ? store_bfloat16(values.data(), rounded.data())
                               : store_float16(values.data(), rounded.data());
      std::copy_n(rounded.data(), size, static_cast<std::uint16_t*>(destination) + done);
    }
    done += size;
  }
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {

HWY_EXPORT(fill);

void fill_synthetic(const SyntheticTensor& tensor, std::uint64_t first, std::size_t count, DType dtype,
                    void* destination) {
  HWY_DYNAMIC_DISPATCH(fill)(tensor, first, count, dtype, destination);
}

}  // namespace heddle
#endif

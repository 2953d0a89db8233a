#include "cli/bench/operands.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/copy.h"
#include "base/error.h"
#include "weights/synthetic_values.h"

namespace heddle {
namespace {

constexpr std::size_t kPatternElements = (std::size_t{4} << 20) + 3;  // odd, so that rows do not repeat
constexpr std::size_t kPatternPiece = std::size_t{1} << 20;

}  // namespace

float hashed_element(std::uint32_t matrix, DType dtype, std::int64_t row, std::int64_t column) {
  auto x = static_cast<std::uint32_t>(row) * 2654435761u ^ static_cast<std::uint32_t>(column) * 2246822519u ^
           matrix * 3266489917u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  const float value = static_cast<float>(x >> 8) * 0x1p-23f - 1;
  if (dtype == DType::bfloat16) return to_float(to_bfloat16(value));
  return dtype == DType::float16 ? to_float(to_float16(value)) : value;
}

void* Operands::take(std::size_t size_bytes) {
  constexpr std::size_t kPadding = 256;  // an empty operand has an address, too
  return buffers_.emplace_back(size_bytes + kPadding, stream_.device()).data();
}

void* Operands::upload(const void* bytes, std::size_t size_bytes) {
  void* const memory = take(size_bytes);
  enqueue_copy(stream_, memory, bytes, size_bytes);
  stream_.synchronize();
  return memory;
}

const std::byte* Operands::pattern(DType dtype, double deviation) {
  Buffer& pattern = patterns_[{dtype, deviation}];
  if (pattern.data() != nullptr) return pattern.data();
  Buffer values(2 * kPatternElements * size_of(dtype));  // on the host; twice, so that a slice may begin anywhere
  const SyntheticTensor recipe{.key = synthetic_key("bench", "operands"),
                               .scale = static_cast<float>(deviation / kUnitDeviation)};
  fill_synthetic(recipe, 0, kPatternElements, dtype, values.data());
  const std::size_t half = values.size_bytes() / 2;
  std::memcpy(values.data() + half, values.data(), half);
  if (stream_.device() == values.device()) {
    pattern = std::move(values);
  } else {
    pattern = Buffer(values.size_bytes(), stream_.device());
    enqueue_copy(stream_, pattern.data(), values.data(), values.size_bytes());
    stream_.synchronize();
  }
  return pattern.data();
}

void* Operands::random(std::size_t count, DType dtype, double deviation) {
  const std::byte* const source = pattern(dtype, deviation);
  auto* const memory = static_cast<std::byte*>(take(count * size_of(dtype)));
  for (std::size_t done = 0; done < count;) {
    const std::size_t piece = std::min(kPatternPiece, count - done);
    next_start_ = (next_start_ + 1'618'033) % kPatternElements;
    enqueue_copy(stream_, memory + done * size_of(dtype), source + next_start_ * size_of(dtype),
                 piece * size_of(dtype));
    done += piece;
  }
  stream_.synchronize();
  return memory;
}

Lane Operands::lane(std::size_t workspace_bytes) {
  if (workspace_bytes == 0) return {stream_};
  return {stream_, Workspace{zeros(workspace_bytes), workspace_bytes}};
}

void* Operands::zeros(std::size_t size_bytes) {
  const std::vector<std::byte> bytes(size_bytes);
  return upload(bytes.data(), bytes.size());
}

Tensor Operands::tensor(std::int64_t rows, std::int64_t columns, DType dtype) {
  return like({.rows = rows, .columns = columns, .row_stride = columns, .dtype = dtype});
}

Tensor Operands::like(const Tensor& other) {
  Tensor tensor = other;
  tensor.data = random(static_cast<std::size_t>(other.rows * other.row_stride), other.dtype, 1);
  return tensor;
}

Weight Operands::weight(std::int64_t out_features, std::int64_t in_features, DType dtype) {
  Weight weight{.out_features = out_features, .in_features = in_features, .dtype = dtype};
  weight.blocks[0] = {.data = random(static_cast<std::size_t>(out_features * in_features), dtype,
                                     1 / std::sqrt(static_cast<double>(in_features))),
                      .num_rows = out_features};
  return weight;
}

HostRows::HostRows(std::int64_t rows, std::int64_t columns, DType dtype)
    : rows_(rows), columns_(columns), dtype_(dtype), data_(static_cast<std::size_t>(rows * columns) * size_of(dtype)) {}

HostRows::HostRows(Stream& stream, const Tensor& tensor, std::span<const std::int64_t> rows)
    : HostRows(static_cast<std::int64_t>(rows.size()), tensor.columns, tensor.dtype) {
  const std::size_t row_bytes = static_cast<std::size_t>(tensor.columns) * size_of(tensor.dtype);
  for (std::size_t i = 0; i < rows.size(); ++i)
    enqueue_copy(stream, data_.data() + i * row_bytes,
                 static_cast<const std::byte*>(tensor.data) +
                     static_cast<std::size_t>(rows[i] * tensor.row_stride) * size_of(tensor.dtype),
                 row_bytes);
  stream.synchronize();
}

HostRows::HostRows(Stream& stream, const Weight& weight, std::span<const std::int64_t> rows)
    : HostRows(stream,
               Tensor{const_cast<void*>(weight.row(0)), weight.out_features, weight.in_features, weight.in_features,
                      weight.dtype},
               rows) {}

Weight HostRows::weight() {
  Weight weight{.out_features = rows_, .in_features = columns_, .dtype = dtype_};
  weight.blocks[0] = {.data = data_.data(), .num_rows = rows_};
  return weight;
}

HostRows HostRows::widened() const {
  HostRows result(rows_, columns_, DType::float32);
  convert(data_.data(), dtype_, result.data_.data(), DType::float32, static_cast<std::size_t>(rows_ * columns_));
  return result;
}

std::vector<float> HostRows::floats() const {
  std::vector<float> values(static_cast<std::size_t>(rows_ * columns_));
  convert(data_.data(), dtype_, values.data(), DType::float32, values.size());
  return values;
}

std::vector<std::int64_t> sampled(std::int64_t count, std::int64_t most) {
  const std::int64_t number = std::min(count, most);
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < number; ++i) places.push_back(number == 1 ? count - 1 : i * (count - 1) / (number - 1));
  return places;
}

double relative_error(std::span<const float> got, std::span<const float> wanted) {
  require(got.size() == wanted.size(), "relative_error: {} and {} numbers", got.size(), wanted.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    const double apart = static_cast<double>(got[i]) - wanted[i];
    difference += apart * apart;
    size += static_cast<double>(wanted[i]) * wanted[i];
  }
  return size > 0 ? std::sqrt(difference / size) : difference > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace heddle

#include "cli/bench/sequence_operands.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/copy.h"
#include "cli/bench/exact_attention.h"
#include "cli/bench/operands.h"
#include "weights/synthetic_values.h"

namespace heddle {
namespace {

constexpr std::array kRecipes = {
    SyntheticTensor{.key = synthetic_key("sequence", "q"), .scale = static_cast<float>(1 / kUnitDeviation)},
    SyntheticTensor{.key = synthetic_key("sequence", "k"), .scale = static_cast<float>(1 / kUnitDeviation)},
    SyntheticTensor{.key = synthetic_key("sequence", "v"), .scale = static_cast<float>(1 / kUnitDeviation)}};
constexpr std::int64_t kCheckedTokens = 8, kCheckedHeads = 2;
constexpr std::size_t kPadding = 256;  // a rank without tokens has an address, too

}  // namespace

SequenceOperands::SequenceOperands(const SequenceShape& shape, int place, Stream& stream)
    : shape_(shape),
      first_(std::accumulate(shape.tokens.begin(), shape.tokens.begin() + place, std::int64_t{0})),
      count_(shape.tokens[static_cast<std::size_t>(place)]),
      q_(on_device(Which::q, stream)),
      k_(on_device(Which::k, stream)),
      v_(on_device(Which::v, stream)),
      y_(elements() * size_of(shape.dtype) + kPadding, stream.device()) {}

float SequenceOperands::scale() const {
  return 1 / std::sqrt(static_cast<float>(shape_.head_dim));
}

std::size_t SequenceOperands::elements() const {
  return static_cast<std::size_t>(shape_.batch * count_ * shape_.num_heads * shape_.head_dim);
}

std::uint64_t SequenceOperands::index(int batch, std::int64_t token, int head) const {
  const std::int64_t row = (batch * shape_.num_tokens() + token) * shape_.num_heads + head;
  return static_cast<std::uint64_t>(row * shape_.head_dim);
}

Buffer SequenceOperands::on_device(Which which, Stream& stream) const {
  const SyntheticTensor& recipe = kRecipes[static_cast<std::size_t>(which)];
  const std::size_t of_batch = elements() / static_cast<std::size_t>(shape_.batch);
  std::vector<std::byte> values(elements() * size_of(shape_.dtype) + kPadding);
  for (int batch = 0; batch < shape_.batch; ++batch)
    fill_synthetic(recipe, index(batch, first_, 0), of_batch, shape_.dtype,
                   values.data() + static_cast<std::size_t>(batch) * of_batch * size_of(shape_.dtype));
  Buffer buffer(values.size(), stream.device());
  enqueue_copy(stream, buffer.data(), values.data(), values.size());
  stream.synchronize();
  return buffer;
}

void SequenceOperands::clear_output(Stream& stream) {
  enqueue_clear(stream, y_.data(), y_.size_bytes());
}

std::vector<float> SequenceOperands::head_of(Which which, int batch, int head,
                                             const std::vector<std::int64_t>& tokens) const {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  std::vector<std::byte> rounded(tokens.size() * dim * size_of(shape_.dtype));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    fill_synthetic(kRecipes[static_cast<std::size_t>(which)], index(batch, tokens[i], head), dim, shape_.dtype,
                   rounded.data() + i * dim * size_of(shape_.dtype));
  std::vector<float> values(tokens.size() * dim);
  convert(rounded.data(), shape_.dtype, values.data(), DType::float32, values.size());
  return values;
}

std::vector<float> SequenceOperands::wanted() const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(shape_.num_tokens())),
      tokens = sampled(count_, kCheckedTokens);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  for (std::int64_t& token : tokens) token += first_;
  const int batch = shape_.batch - 1;
  std::vector<float> values;
  for (const std::int64_t of : sampled(shape_.num_heads, kCheckedHeads)) {
    const int head = static_cast<int>(of);
    std::ranges::copy(exact_attention(head_of(Which::q, batch, head, tokens), head_of(Which::k, batch, head, all),
                                      head_of(Which::v, batch, head, all), shape_.head_dim, scale()),
                      std::back_inserter(values));
  }
  return values;
}

double SequenceOperands::error(Stream& stream) {
  if (!wanted_) wanted_ = wanted();
  std::vector<std::int64_t> rows;
  for (const std::int64_t head : sampled(shape_.num_heads, kCheckedHeads))
    for (const std::int64_t token : sampled(count_, kCheckedTokens))
      rows.push_back(((shape_.batch - 1) * count_ + token) * shape_.num_heads + head);
  const Tensor y{y_.data(), shape_.batch * count_ * shape_.num_heads, shape_.head_dim, shape_.head_dim, shape_.dtype};
  return relative_error(HostRows(stream, y, rows).floats(), *wanted_);
}

}  // namespace heddle

// Weights on a GPU compared with the same weights on the host; skipped without a GPU.
#include "weights/weight_upload.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/copy.h"
#include "base/error.h"
#include "gpu_here.h"
#include "weights/synthetic_model.h"
#include "weights/weight_loader.h"

namespace heddle {
namespace {

// A synthetic model whose tensors come from the host, as those of a file do.
class FromTheHost : public TensorSource {
 public:
  explicit FromTheHost(const TensorSource& source) : source_(source) {}
  std::vector<std::string_view> names() const override { return source_.names(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override {
    if (name.find(broken_) != std::string_view::npos) throw Failure("the file is gone");
    return source_.rows(name, first_row, num_rows);
  }
  std::string where() const override { return source_.where(); }
  std::string broken_ = "no tensor";

 private:
  const TensorSource& source_;
};

std::vector<std::byte> read_back(const void* data, std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  Stream stream(kFirstGpu);
  enqueue_copy(stream, bytes.data(), data, size_bytes);
  stream.synchronize();
  return bytes;
}

std::vector<std::byte> bytes_on_host(const Weight& weight) {
  std::vector<std::byte> bytes;
  for (const WeightBlock& block : weight.blocks) {
    const auto* data = static_cast<const std::byte*>(block.data);
    bytes.insert(bytes.end(), data, data + static_cast<std::size_t>(block.num_rows) * weight.row_bytes());
  }
  return bytes;
}

class WeightUploadOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  // 28 MiB in a matrix of three tensors, none of them a whole number of pieces.
  const SyntheticModel model_{*parse_synthetic_name("synth:qwen2.5-7b,layers=1")};
  const Extent hidden_{3584, ""};
  const std::vector<NamedRows> qkv_{{"model.layers.0.self_attn.q_proj.weight", {3584, ""}},
                                    {"model.layers.0.self_attn.k_proj.weight", {512, ""}},
                                    {"model.layers.0.self_attn.v_proj.weight", {512, ""}}};
  const std::vector<NamedRows> biases_{{"model.layers.0.self_attn.q_proj.bias", {3584, ""}},
                                       {"model.layers.0.self_attn.k_proj.bias", {512, ""}},
                                       {"model.layers.0.self_attn.v_proj.bias", {512, ""}}};
};

TEST_F(WeightUploadOnGpu, GivesTheBytesOfTheHost) {
  const FromTheHost file(model_);
  for (const TensorSource* source :
       {static_cast<const TensorSource*>(&file), static_cast<const TensorSource*>(&model_)})
    for (const std::optional<DType> dtype :
         {std::optional<DType>(), std::optional(DType::float32), std::optional(DType::float16)}) {
      WeightLoader on_host(*source, {.dtype = dtype});
      WeightLoader on_gpu(*source, {.device = kFirstGpu, .dtype = dtype});
      const Weight expected = on_host.matrix(qkv_, hidden_);
      const Weight weight = on_gpu.matrix(qkv_, hidden_);
      const float* expected_bias = on_host.vector(biases_);
      const float* bias = on_gpu.vector(biases_);
      const std::vector<float> constants{1, 2, 3};
      const float* copied = on_gpu.constants(constants);
      const std::string_view anything[] = {""};
      const WeightStorage host_storage = on_host.finish(anything);
      const WeightStorage storage = on_gpu.finish(anything);
      EXPECT_EQ(storage.device, kFirstGpu);
      EXPECT_EQ(weight.blocks[0].num_rows, weight.out_features);
      EXPECT_TRUE(read_back(weight.blocks[0].data, weight.size_bytes()) == bytes_on_host(expected));
      const auto* begin = reinterpret_cast<const std::byte*>(expected_bias);
      EXPECT_TRUE(std::ranges::equal(read_back(bias, 4608 * 4), std::span(begin, 4608 * 4)));
      EXPECT_TRUE(std::ranges::equal(read_back(copied, 12), std::as_bytes(std::span(constants))));
    }
}

// As a rank of several holds them: rows 5 on of a matrix, columns 256 to 1279.
TEST_F(WeightUploadOnGpu, SomeColumnsAreThoseOfTheHost) {
  const FromTheHost file(model_);
  const NamedRows output{.name = "model.layers.0.self_attn.o_proj.weight", .rows = hidden_, .first = 5};
  for (const TensorSource* source :
       {static_cast<const TensorSource*>(&file), static_cast<const TensorSource*>(&model_)})
    for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::float32)}) {
      WeightLoader on_host(*source, {.dtype = dtype});
      WeightLoader on_gpu(*source, {.device = kFirstGpu, .dtype = dtype, .reserved_bytes = 0});
      const Weight expected = on_host.matrix({&output, 1}, hidden_, {256, 1024});
      const Weight weight = on_gpu.matrix({&output, 1}, hidden_, {256, 1024});
      const std::string_view anything[] = {""};
      const WeightStorage host_storage = on_host.finish(anything), storage = on_gpu.finish(anything);
      ASSERT_EQ(weight.in_features, 1024);
      EXPECT_TRUE(read_back(weight.blocks[0].data, weight.size_bytes()) == bytes_on_host(expected));
    }
}

TEST_F(WeightUploadOnGpu, AFileThatCannotBeReadEndsTheLoad) {
  FromTheHost file(model_);
  file.broken_ = "k_proj";
  WeightLoader loader(file, {.device = kFirstGpu});
  const std::string_view anything[] = {""};
  EXPECT_THROW(
      {
        loader.matrix(qkv_, hidden_);
        loader.finish(anything);
      },
      Failure);
}

}  // namespace
}  // namespace heddle

// Models with random weights and the shapes of real ones: `synth:NAME[,layers=N][,dtype=D]`.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "weights/model_source.h"
#include "weights/shapes.h"
#include "weights/synthetic_values.h"

namespace heddle {

// The parsed name.
struct SyntheticName {
  const KnownShape* shape = nullptr;
  int num_layers = 0;
  DType dtype = DType::float32;

  std::string text() const;  // canonical: "synth:llama-3-8b,layers=2", without what equals the real model
};

// Nothing when `model` does not begin with "synth:". Throws InputError that lists the names, or the options, unless the
// rest is NAME[,layers=N][,dtype=D] of a known shape. A model may have fewer layers than the real one, not more.
std::optional<SyntheticName> parse_synthetic_name(std::string_view model);

// Weights as synthetic_values.h defines them, keyed by the names of shape and tensor: equal for all dtypes, except for
// rounding. Standard deviations keep activations near 1 through all layers: 1/sqrt(in_features) for projections,
// divided by sqrt(2 * layers) for the last one of a block; norms around 1; logits with a deviation near 3.
class SyntheticModel : public ModelSource {
 public:
  explicit SyntheticModel(const SyntheticName& name);

  JsonField config() const override;
  std::optional<JsonField> generation_config() const override;
  std::size_t total_bytes() const override { return total_bytes_; }

  std::vector<std::string_view> names() const override;
  const TensorInfo* find(std::string_view name) const override;
  // Generated on each call, by several threads; only the returned owner keeps the rows.
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override;
  void read_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows,
                 std::byte* destination) const override;
  void read_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                    std::byte* destination) const override;
  bool make_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
                 std::byte* destination, Stream& stream) const override;
  bool make_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns, DType dtype,
                    std::byte* destination, Stream& stream) const override;
  std::string where() const override { return where_; }

  const SyntheticName& name() const { return name_; }
  // The parameters that generate `tensor`. Throws InvalidArgument when there is no such tensor.
  const SyntheticTensor& recipe(std::string_view tensor) const;

 private:
  struct Entry {
    TensorInfo info;
    SyntheticTensor recipe;
  };

  void add(const std::string& tensor, std::vector<std::int64_t> shape, double deviation, float offset = 0);
  void add_projection(const std::string& name, std::int64_t out_features, std::int64_t in_features, double gain);
  void add_norm(const std::string& name, std::int64_t size);
  void add_layer(int layer);
  void add_attention(const std::string& prefix);
  void add_latent_attention(const std::string& prefix);
  void add_feed_forward(const std::string& prefix, const std::array<const char*, 3>& gate_up_down,
                        std::int64_t intermediate);
  void add_experts(const std::string& prefix);
  double gain_to_residual() const;  // of what is added to the residual
  const Entry& entry(std::string_view tensor) const;
  void check_rows(std::string_view name, const Entry& tensor, std::int64_t first_row, std::int64_t num_rows) const;

  SyntheticName name_;
  std::string where_;
  std::shared_ptr<const nlohmann::json> config_;
  std::shared_ptr<const nlohmann::json> generation_config_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::size_t total_bytes_ = 0;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace heddle

// A model's source that counts the bytes that are read from it.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "weights/model_source.h"

namespace heddle {

class CountingSource : public ModelSource {
 public:
  explicit CountingSource(const ModelSource& source) : source_(source) {}

  std::size_t bytes_read() const { return bytes_read_; }

  JsonField config() const override { return source_.config(); }
  std::optional<JsonField> generation_config() const override { return source_.generation_config(); }
  std::size_t total_bytes() const override { return source_.total_bytes(); }
  std::vector<std::string_view> names() const override { return source_.names(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override {
    TensorRows rows = source_.rows(name, first_row, num_rows);
    bytes_read_ += rows.bytes.size();
    return rows;
  }
  void read_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                    std::byte* destination) const override {
    source_.read_columns(name, first_row, num_rows, columns, destination);
    const TensorInfo& info = *find(name);
    bytes_read_ += info.size_bytes / static_cast<std::size_t>(info.num_elements()) *
                   static_cast<std::size_t>(num_rows * columns.count);
  }
  std::string where() const override { return source_.where(); }

 private:
  const ModelSource& source_;
  mutable std::atomic<std::size_t> bytes_read_{0};
};

}  // namespace heddle

#include "weights/tensor_source.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace heddle {
namespace {

constexpr std::array<StoredDType, 20> kStoredDTypes{{
    {"F32", 32, DType::float32},  {"BF16", 16, DType::bfloat16}, {"F16", 16, DType::float16},
    {"BOOL", 8, std::nullopt},    {"U8", 8, std::nullopt},       {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E4M3", 8, std::nullopt},  {"F8_E8M0", 8, std::nullopt},
    {"I16", 16, std::nullopt},    {"U16", 16, std::nullopt},     {"I32", 32, std::nullopt},
    {"U32", 32, std::nullopt},    {"F64", 64, std::nullopt},     {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},    {"C64", 64, std::nullopt},     {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},
}};

}  // namespace

std::optional<StoredDType> stored_dtype(std::string_view name) {
  const auto* const found = std::ranges::find(kStoredDTypes, name, &StoredDType::name);
  if (found == kStoredDTypes.end()) return std::nullopt;
  return *found;
}

StoredDType stored_dtype(DType dtype) {
  return *std::ranges::find(kStoredDTypes, std::optional(dtype), &StoredDType::dtype);
}

std::int64_t TensorInfo::num_elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void TensorSource::read_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows,
                             std::byte* destination) const {
  const TensorRows all = rows(name, first_row, num_rows);
  read_mapped(all.bytes);  // throws if the file was truncated, instead of ending with SIGBUS
  if (!all.bytes.empty()) std::memcpy(destination, all.bytes.data(), all.bytes.size());
}

void TensorSource::read_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                                std::byte* destination) const {
  require_columns(*this, name, columns);
  const TensorInfo& info = *find(name);
  const std::size_t element_bytes =
      info.size_bytes / static_cast<std::size_t>(std::max<std::int64_t>(1, info.num_elements()));
  const std::size_t row_bytes = static_cast<std::size_t>(info.shape[1]) * element_bytes;
  const std::size_t first_byte = static_cast<std::size_t>(columns.first) * element_bytes;
  const std::size_t part_bytes = static_cast<std::size_t>(columns.count) * element_bytes;
  const TensorRows all = rows(name, first_row, num_rows);
  if (num_rows == 0 || part_bytes == 0) return;
  const auto parts = all.bytes.subspan(first_byte, all.bytes.size() - row_bytes + part_bytes);
  const bool share_pages = row_bytes - part_bytes < static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (share_pages) read_mapped(parts);  // in one call: each page has some of a part
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    const auto part = parts.subspan(row * row_bytes, part_bytes);
    if (!share_pages) read_mapped(part);
    std::memcpy(destination + row * part_bytes, part.data(), part_bytes);
  }
}

bool TensorSource::make_rows(std::string_view, std::int64_t, std::int64_t, DType, std::byte*, Stream&) const {
  return false;
}

bool TensorSource::make_columns(std::string_view, std::int64_t, std::int64_t, Slice, DType, std::byte*, Stream&) const {
  return false;
}

void require_columns(const TensorSource& source, std::string_view name, Slice columns) {
  const TensorInfo* info = source.find(name);
  require(info != nullptr && info->shape.size() == 2, "{}: there is no matrix {}", source.where(), quoted_name(name));
  require(columns.first >= 0 && columns.count >= 0 && columns.first <= info->shape[1] &&
              columns.count <= info->shape[1] - columns.first,
          "{}: matrix {} has {} columns; {} from {} were asked for", source.where(), quoted_name(name), info->shape[1],
          columns.count, columns.first);
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kMost = 160;
  std::string text =
      nlohmann::json(name.substr(0, kMost)).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (name.size() > kMost) text += "...";
  return text;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMost = 8;
  return fmt::format("[{}{}]", fmt::join(shape.first(std::min(shape.size(), kMost)), ", "),
                     shape.size() > kMost ? ", ..." : "");
}

}  // namespace heddle

#include "weights/damage.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "base/file.h"

namespace heddle {
namespace {

struct Found {
  std::int64_t count = 0;
  std::int64_t first = 0;  // element
};

// Counts numbers whose exponent has all its bits set. `Word` has the size of an element.
template <class Word>
Found count_damaged(std::span<const std::byte> bytes, Word exponent) {
  Found found;
  for (std::size_t i = 0; i < bytes.size() / sizeof(Word); ++i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
    if ((word & exponent) != exponent) continue;
    if (found.count++ == 0) found.first = static_cast<std::int64_t>(i);
  }
  return found;
}

Found count_damaged(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::float32:
      return count_damaged<std::uint32_t>(bytes, 0x7F80'0000);
    case DType::bfloat16:
      return count_damaged<std::uint16_t>(bytes, 0x7F80);
    case DType::float16:
      return count_damaged<std::uint16_t>(bytes, 0x7C00);
    default:
      return {};
  }
}

}  // namespace

std::optional<std::string> find_damage(const TensorSource& source, std::string_view name) {
  const TensorInfo& info = *source.find(name);
  if (!info.dtype.dtype || info.size_bytes == 0) return std::nullopt;
  const TensorRows rows = source.rows(name, 0, info.shape.empty() ? 1 : info.shape[0]);
  read_mapped(rows.bytes);
  const Found found = count_damaged(rows.bytes, *info.dtype.dtype);
  if (found.count == 0) return std::nullopt;
  return fmt::format(
      "{}: tensor {} is damaged: {} of its {} numbers are NaN or infinite, the first at index {}. Download the file "
      "again",
      info.file, quoted_name(name), found.count, info.num_elements(), found.first);
}

std::optional<std::string> find_damage(const TensorSource& source) {
  for (const std::string_view name : source.names())
    if (std::optional<std::string> damage = find_damage(source, name)) return damage;
  return std::nullopt;
}

}  // namespace heddle

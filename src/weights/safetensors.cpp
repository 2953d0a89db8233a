#include "weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths and tensors are read as the file has them");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr int kHeaderDepth = 3;  // header, tensor, shape

// The text of the header. The tensors' bytes follow it.
std::string_view header_of(std::span<const std::byte> file, std::string_view where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs"))
    throw_error<InputError>("{}: is a Git LFS pointer instead of the weights. Fetch them with: git lfs pull", where);
  if (file.size() < kLengthBytes)
    throw_error<InputError>("{}: has {} bytes, too few for a safetensors file. Is it truncated?", where, file.size());
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeader)
    throw_error<InputError>(
        "{}: its header would have {} bytes, more than the format's {} (max_header_bytes). Is this a safetensors file?",
        where, length, kMaxSafetensorsHeader);
  if (length > file.size() - kLengthBytes)
    throw_error<InputError>("{}: its header has {} bytes, the file only {}. Is it truncated?", where, length,
                            file.size());
  const std::string_view header = text.substr(kLengthBytes, length);
  if (!header.starts_with('{')) throw_error<InputError>("{}: its header is not a JSON object", where);
  // The JSON parser stops at a zero byte and would not see what follows.
  if (header.find('\0') != std::string_view::npos) throw_error<InputError>("{}: its header holds a zero byte", where);
  return header;
}

void check_metadata(const JsonField& metadata) {
  for (const auto& [key, value] : metadata.value().items())
    if (!value.is_string())
      JsonField(value, fmt::format("{}: {}", metadata.path(), quoted_name(key))).fail_expected("a string");
}

// Accepts integers without sign and fraction only.
std::optional<std::int64_t> count_from(const nlohmann::json& value) {
  if (!value.is_number_unsigned() || !std::in_range<std::int64_t>(value.get<std::uint64_t>())) return std::nullopt;
  return value.get<std::int64_t>();
}

StoredTensor parse_tensor(const std::string& name, const JsonField& entry, std::span<const std::byte> data) {
  const JsonField type = entry.at("dtype");
  const std::optional<StoredDType> dtype = stored_dtype(type.text());
  if (!dtype) type.fail(fmt::format("{} is not a dtype of the safetensors format", shorten(type.value())));

  const JsonField shape_field = entry.at("shape");
  if (!shape_field.is_array()) shape_field.fail_expected("an array");
  std::vector<std::int64_t> shape;
  std::int64_t num_bits = dtype->bits;
  for (const nlohmann::json& value : shape_field.value()) {  // not JsonFields: a hostile shape has millions
    const auto size = count_from(value);
    if (!size) shape_field.fail(fmt::format("expected whole numbers from 0 to 2^63 - 1, found {}", shorten(value)));
    num_bits = checked_mul(num_bits, *size, shape_field.path());
    shape.push_back(*size);
  }
  if (num_bits % 8 != 0) shape_field.fail(fmt::format("{} bits are not a whole number of bytes", num_bits));
  const auto size_bytes = static_cast<std::size_t>(num_bits / 8);

  const JsonField offsets = entry.at("data_offsets");
  const bool is_pair = offsets.is_array() && offsets.value().size() == 2;
  const auto first = is_pair ? count_from(offsets.value()[0]) : std::nullopt;
  const auto last = is_pair ? count_from(offsets.value()[1]) : std::nullopt;
  if (!first || !last)
    offsets.fail(fmt::format("expected two whole numbers from 0 to 2^63 - 1, found {}", shorten(offsets.value())));
  const auto begin = static_cast<std::size_t>(*first);
  const auto end = static_cast<std::size_t>(*last);
  if (begin > end) offsets.fail(fmt::format("[{}, {}] ends before it begins", begin, end));
  if (end > data.size())
    offsets.fail(fmt::format("[{}, {}] lies outside of the file, which has {} bytes after its header. Is it truncated?",
                             begin, end, data.size()));
  if (end - begin != size_bytes)
    throw_error<InputError>("{}: has {} bytes by data_offsets, but {} by shape {} and dtype {}", entry.path(),
                            end - begin, size_bytes, shape_text(shape), dtype->name);
  return {name, *dtype, std::move(shape), data.subspan(begin, size_bytes)};
}

void check_no_hole_or_overlap(std::span<const StoredTensor> sorted, std::span<const std::byte> data,
                              std::string_view where) {
  const std::byte* expected = data.data();
  for (const StoredTensor& tensor : sorted) {
    if (tensor.bytes.data() != expected)
      throw_error<InputError>("{}: tensor {}: begins at byte {}, but the tensors before it end at {}: {}", where,
                              quoted_name(tensor.name), tensor.bytes.data() - data.data(), expected - data.data(),
                              tensor.bytes.data() < expected ? "they overlap" : "there is a hole");
    expected += tensor.bytes.size();
  }
  if (const auto rest = static_cast<std::size_t>(data.data() + data.size() - expected); rest > 0)
    throw_error<InputError>("{}: {} bytes after the last tensor belong to none", where, rest);
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  const std::string_view header_text = header_of(file, where);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_text.size());
  const nlohmann::json header = parse_json(header_text, fmt::format("{}: header", where), kHeaderDepth);

  std::vector<StoredTensor> tensors;
  tensors.reserve(header.size());
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      const JsonField metadata(entry, fmt::format("{}: __metadata__", where));
      if (!metadata.is_object()) metadata.fail_expected("an object");
      check_metadata(metadata);
    } else {
      tensors.push_back(parse_tensor(name, {entry, fmt::format("{}: tensor {}", where, quoted_name(name))}, data));
    }
  }
  // An empty tensor comes before the tensor that begins at the same byte.
  std::ranges::sort(tensors, {},
                    [](const StoredTensor& tensor) { return std::tuple(tensor.bytes.data(), tensor.bytes.size()); });
  check_no_hole_or_overlap(tensors, data, where);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), tensors_(parse_safetensors(file_.bytes(), path.string())) {}

}  // namespace heddle

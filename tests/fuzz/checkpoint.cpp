// Input: a folder as text: "=== NAME" on a line of its own begins each file. What begins with '{' and is named
// *.safetensors becomes the file with that header; a zero byte separates it from its data.
#include <fstream>
#include <optional>

#include "fuzz/target.h"
#include "models/registry.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_builder.h"

namespace heddle::fuzz {
namespace {

constexpr std::string_view kMark = "=== ";
constexpr std::size_t kMaxFiles = 16;

std::string_view take_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  return line;
}

void write(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary);
  if (path.extension() == ".safetensors" && contents.starts_with('{')) {
    const auto [header, data] = split_at_zero(contents);
    file << safetensors_file(header, data);
  } else {
    file << contents;
  }
}

void write_folder(const std::filesystem::path& folder, std::string_view input) {
  std::size_t num_files = 0;
  while (input.starts_with(kMark) && num_files++ < kMaxFiles) {
    const std::string_view name = take_line(input).substr(kMark.size());
    const std::size_t end = input.find("\n=== ");
    const std::string_view contents = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    const bool is_plain = !name.empty() && name.size() < 200 && name != "." && name != ".." &&
                          name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
    if (is_plain) write(folder / name, contents);
  }
}

}  // namespace

void fuzz_checkpoint(std::string_view input) {
  static const TemporaryFolder parent;
  const std::filesystem::path folder = parent.path() / "model";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  write_folder(folder, input);

  accepts([&] {
    const Checkpoint checkpoint(folder);
    expect(checkpoint.config().is_object(), "a config that is no object");
    expect(!checkpoint.weight_files().empty(), "no weights");
    std::size_t total_bytes = 0;
    unsigned sum = 0;
    for (const std::string_view name : checkpoint.names()) {
      const TensorInfo* info = checkpoint.find(name);
      expect(info != nullptr, "no tensor of the name {}", quoted_name(name));
      total_bytes += info->size_bytes;
      const std::int64_t num_rows = info->shape.empty() ? 1 : info->shape[0];
      const TensorRows rows = checkpoint.rows(name, 0, num_rows);
      expect(num_rows == 0 || rows.bytes.size() == info->size_bytes, "{} of {} bytes", rows.bytes.size(),
             info->size_bytes);
      for (const std::byte byte : rows.bytes) sum += static_cast<unsigned>(byte);  // is mapped
    }
    expect(total_bytes == checkpoint.total_bytes(), "{} bytes, not {}", total_bytes, checkpoint.total_bytes());
    volatile unsigned used = sum;
    static_cast<void>(used);
    accepts([&] { check_model(checkpoint); });
  });
}

}  // namespace heddle::fuzz

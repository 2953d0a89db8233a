#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "weights/safetensors.h"

namespace heddle {
namespace {

std::size_t size_bytes_of(const TensorToWrite& tensor) {
  std::size_t num_bits = static_cast<std::size_t>(tensor.dtype.bits);
  for (const std::int64_t size : tensor.shape) {
    require(size >= 0, "tensor {} has shape {}", quoted_name(tensor.name), shape_text(tensor.shape));
    num_bits = checked_mul(num_bits, static_cast<std::size_t>(size), tensor.name);
  }
  require(num_bits % 8 == 0, "tensor {} is not a whole number of bytes", quoted_name(tensor.name));
  return num_bits / 8;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       FunctionRef<void(std::size_t, ByteSink)> produce) {
  nlohmann::json header{{"__metadata__", {{"format", "pt"}}}};  // required by transformers
  std::vector<std::size_t> sizes;
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    require(!header.contains(tensor.name), "two tensors are called {}", quoted_name(tensor.name));
    sizes.push_back(size_bytes_of(tensor));
    const std::size_t end = checked_add(offset, sizes.back(), "size of all tensors");
    header[tensor.name] = {
        {"dtype", std::string(tensor.dtype.name)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize(round_up(text.size(), sizeof(std::uint64_t)), ' ');  // aligns the data
  require(text.size() <= kMaxSafetensorsHeader, "{} tensors do not fit into a safetensors header", tensors.size());

  PendingFile file(path);
  const auto length = static_cast<std::uint64_t>(text.size());
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::size_t written = 0;
    produce(i, [&](std::span<const std::byte> bytes) {
      file.write(bytes);
      written += bytes.size();
    });
    require(written == sizes[i], "tensor {} has {} bytes, {} were given", quoted_name(tensors[i].name), sizes[i],
            written);
  }
  file.commit();
}

}  // namespace heddle

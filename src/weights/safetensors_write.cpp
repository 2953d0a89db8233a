#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/error.h"
#include "weights/safetensors.h"

namespace heddle {
namespace {

// A file that takes its name when it is complete, and is removed otherwise.
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& path)
      : path_(path), temporary_(path.string() + fmt::format(".{}.tmp", ::getpid())) {
    file_ = std::fopen(temporary_.c_str(), "wbe");
    if (file_ == nullptr) fail();
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (!complete_) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }

  void complete() {
    std::FILE* file = std::exchange(file_, nullptr);
    if (std::fclose(file) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
    complete_ = true;
  }

 private:
  [[noreturn]] void fail() const { throw_error<Failure>("{}: cannot write: {}", path_.string(), std::strerror(errno)); }

  std::filesystem::path path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
  bool complete_ = false;
};

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
  nlohmann::json header{{"__metadata__", {{"format", "pt"}}}};  // transformers wants to be told
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
  text.resize(round_up(text.size(), sizeof(std::uint64_t)), ' ');  // so that the data begins aligned
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
  file.complete();
}

}  // namespace heddle

// The safetensors format: 8 bytes of header length (little-endian), a JSON header that says for every tensor its dtype,
// shape and place, then the tensors' bytes. https://github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "weights/tensor_source.h"

namespace heddle {

inline constexpr std::size_t kMaxSafetensorsHeader = 100'000'000;

struct StoredTensor {
  std::string name;
  StoredDType dtype;
  std::vector<std::int64_t> shape;  // row-major; no dimension at all is one element
  std::span<const std::byte> bytes;
};

// The tensors of a file's whole content, in the order of their bytes. `where` begins every message. Throws InputError
// unless all of the format's rules hold: the header fits, is one JSON object and names nothing twice; each tensor has
// as many bytes as shape and dtype make; the tensors cover what follows the header without hole or overlap.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, std::string_view where);

// A file, mapped: bytes are read when touched. Throws as parse_safetensors and MappedFile do.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  std::span<const StoredTensor> tensors() const { return tensors_; }

 private:
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
};

struct TensorToWrite {
  std::string name;
  StoredDType dtype;
  std::vector<std::int64_t> shape;
};

// Writes `tensors` in the order given; tensors of 4 bytes an element before those of 2 are all aligned.
// `produce(i, sink)` passes all bytes of tensor i to `sink`, in pieces of any size; nothing is held in memory.
// `path` appears when all is written. Throws Failure when it cannot be written; InvalidArgument when a tensor's bytes
// are not as many as its shape and dtype make.
using ByteSink = FunctionRef<void(std::span<const std::byte>)>;
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       FunctionRef<void(std::size_t, ByteSink)> produce);

}  // namespace heddle

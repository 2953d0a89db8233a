// The safetensors format: 8 bytes of header length (little-endian), a JSON header with dtype, shape and position of
// every tensor, then the tensors' bytes. https://github.com/huggingface/safetensors
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
  std::vector<std::int64_t> shape;  // row-major; a tensor without dimensions has one element
  std::span<const std::byte> bytes;
};

// Parses the content of a whole file and returns its tensors in byte order. `where` begins every message. Throws
// InputError unless all of the format's rules hold: the header fits, is one JSON object and has no duplicate names;
// each tensor has exactly the bytes of its shape and dtype; the tensors cover the data without hole or overlap.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, std::string_view where);

// A memory-mapped file: bytes are read on access. Throws as parse_safetensors and MappedFile do.
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

// Writes `tensors` in the given order; put tensors with 4-byte elements before those with 2-byte elements to align them
// all. `produce(i, sink)` passes all bytes of tensor i to `sink`, in pieces of any size; nothing is kept in memory.
// `path` appears when everything is written. Throws Failure when it cannot be written; InvalidArgument when a tensor's
// bytes do not match its shape and dtype.
using ByteSink = FunctionRef<void(std::span<const std::byte>)>;
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       FunctionRef<void(std::size_t, ByteSink)> produce);

}  // namespace heddle

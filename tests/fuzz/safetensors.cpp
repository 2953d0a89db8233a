// Input: a safetensors file; or, where it begins with '{', its header without the length, a zero byte, its data.
#include <algorithm>
#include <cmath>
#include <set>

#include "fuzz/target.h"
#include "weights/safetensors.h"
#include "weights/safetensors_builder.h"

namespace heddle::fuzz {
namespace {

void parse(std::string_view file) {
  accepts([&] {
    const auto bytes = bytes_of(file);
    const auto tensors = parse_safetensors(bytes, "fuzz.safetensors");
    const std::byte* next = tensors.empty() ? bytes.data() + bytes.size() : tensors.front().bytes.data();
    std::set<std::string> names;
    for (const StoredTensor& tensor : tensors) {
      double num_bits = tensor.dtype.bits;
      for (const std::int64_t size : tensor.shape) {
        expect(size >= 0, "a dimension of {}", size);
        num_bits *= static_cast<double>(size);
      }
      expect(num_bits == 8 * static_cast<double>(tensor.bytes.size()), "{} bytes for shape {}", tensor.bytes.size(),
             shape_text(tensor.shape));
      expect(tensor.bytes.data() == next, "a hole or an overlap before {}", quoted_name(tensor.name));
      expect(names.insert(tensor.name).second, "{} twice", quoted_name(tensor.name));
      check_message(quoted_name(tensor.name));
      next += tensor.bytes.size();
    }
    expect(next == bytes.data() + bytes.size(), "bytes that belong to no tensor");
  });
}

}  // namespace

void fuzz_safetensors(std::string_view input) {
  parse(input);
  if (!input.starts_with('{')) return;
  const auto [header, data] = split_at_zero(input);
  parse(safetensors_file(header, data));
}

}  // namespace heddle::fuzz

// A view of the paged key-value cache, for operators. engine/page_allocator.h says who owns which page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace heddle {

// For each layer, keys and values in pages of `page_size` tokens: [num_layers][2][num_pages][num_kv_heads][page_size]
// [head_dim]. A sequence's token at position t is in slot t % page_size of page page_table[t / page_size].
struct KvPages {
  std::byte* data = nullptr;
  int num_layers = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  int num_kv_heads = 0;
  int head_dim = 0;
  DType dtype = DType::float32;

  std::size_t bytes_per_page() const {  // keys or values, of one layer
    return size_of(dtype) * static_cast<std::size_t>(num_kv_heads) * static_cast<std::size_t>(page_size) *
           static_cast<std::size_t>(head_dim);
  }
  std::size_t bytes_per_layer_half() const { return bytes_per_page() * static_cast<std::size_t>(num_pages); }
  std::size_t size_bytes() const { return bytes_per_layer_half() * 2 * static_cast<std::size_t>(num_layers); }
  std::size_t bytes_per_token() const {  // keys and values, of all layers
    return bytes_per_page() / static_cast<std::size_t>(page_size) * 2 * static_cast<std::size_t>(num_layers);
  }

  // [num_pages, num_kv_heads, page_size, head_dim] of one layer.
  void* keys(int layer) const { return data + bytes_per_layer_half() * (2 * static_cast<std::size_t>(layer)); }
  void* values(int layer) const { return data + bytes_per_layer_half() * (2 * static_cast<std::size_t>(layer) + 1); }
};

}  // namespace heddle

// A view of the paged cache of a model, for operators. engine/page_allocator.h says who owns which page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace heddle {

// What the cache keeps of each token in each layer: `num_heads` rows of `width` elements.
struct KvPlane {
  std::string_view name;
  int num_heads = 0;
  int width = 0;
  DType dtype = DType::float32;

  std::size_t bytes_per_token() const {
    return size_of(dtype) * static_cast<std::size_t>(num_heads) * static_cast<std::size_t>(width);
  }
};

// The planes of a model's cache.
struct KvLayout {
  static constexpr int kMostPlanes = 2;

  std::array<KvPlane, kMostPlanes> planes{};
  int num_planes = 0;

  const KvPlane& plane(int index) const { return planes[static_cast<std::size_t>(index)]; }
  std::size_t bytes_per_token() const {  // of one layer
    std::size_t bytes = 0;
    for (int i = 0; i < num_planes; ++i) bytes += plane(i).bytes_per_token();
    return bytes;
  }
};

// Attention's: a key and a value for each KV head.
inline KvLayout keys_and_values(int num_kv_heads, int head_dim, DType dtype) {
  return {.planes = {{{"keys", num_kv_heads, head_dim, dtype}, {"values", num_kv_heads, head_dim, dtype}}},
          .num_planes = 2};
}

// Latent attention's: one latent that all heads share, and behind it their rotated key
// (kernels/attention/latent_kv_write.h).
inline KvLayout one_latent(int latent_dim, int rope_dim, DType dtype) {
  return {.planes = {{{"latents", 1, latent_dim + rope_dim, dtype}, {}}}, .num_planes = 1};
}

// Plane after plane, each [num_layers][num_pages][num_heads][page_size][width]. A sequence's token at position t is in
// slot t % page_size of page page_table[t / page_size], in all planes and layers.
struct KvPages {
  std::byte* data = nullptr;
  int num_layers = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  KvLayout layout;

  std::size_t bytes_per_page(int plane) const {  // of one layer
    return layout.plane(plane).bytes_per_token() * static_cast<std::size_t>(page_size);
  }
  std::size_t bytes_of_plane(int plane) const {  // of all layers
    return bytes_per_page(plane) * static_cast<std::size_t>(num_pages) * static_cast<std::size_t>(num_layers);
  }
  std::size_t size_bytes() const {
    return bytes_per_token() * static_cast<std::size_t>(page_size) * static_cast<std::size_t>(num_pages);
  }
  std::size_t bytes_per_token() const { return layout.bytes_per_token() * static_cast<std::size_t>(num_layers); }

  // The pages of a plane in one layer: [num_pages, num_heads, page_size, width].
  std::byte* at(int plane, int layer) const {
    std::byte* begin = data;
    for (int i = 0; i < plane; ++i) begin += bytes_of_plane(i);
    return begin + bytes_per_page(plane) * static_cast<std::size_t>(num_pages) * static_cast<std::size_t>(layer);
  }
};

}  // namespace heddle

// The loops over tiles of bfloat16, on a unit of plain C++: they are the same on a processor that has one.
#include "kernels/linear/linear_tiles.h"

#include <cstring>

#include "kernels/cpu_arithmetic.h"
#include "kernels/operands.h"

namespace heddle {
namespace {

// What the instructions of AMX do, but for subnormals, which those take for zeros.
struct PlainUnit {
  struct Tile {
    std::byte bytes[16][64];
  };
  static inline thread_local TileShapes shapes;
  static inline thread_local Tile tiles[8];
  static inline thread_local int num_fetched = 0;

  static void configure(const TileShapes& new_shapes) {
    shapes = new_shapes;
    for (Tile& tile : tiles) tile = {};
  }
  static void release() { shapes = TileShapes{.palette = 0}; }

  template <int kTile>
  static void zero() {
    tiles[kTile] = {};
  }
  template <int kTile>
  static void load(const void* from, std::ptrdiff_t stride) {
    ASSERT_EQ(shapes.palette, 1);
    for (int r = 0; r < shapes.rows[kTile]; ++r)
      std::memcpy(tiles[kTile].bytes[r], static_cast<const std::byte*>(from) + r * stride, shapes.row_bytes[kTile]);
  }
  template <int kTile>
  static void store(void* to, std::ptrdiff_t stride) {
    for (int r = 0; r < shapes.rows[kTile]; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * stride, tiles[kTile].bytes[r], shapes.row_bytes[kTile]);
  }
  template <int kSums, int kLeft, int kRight>
  static void multiply() {
    ASSERT_EQ(shapes.rows[kSums], shapes.rows[kLeft]);
    ASSERT_EQ(shapes.row_bytes[kSums], shapes.row_bytes[kRight]);
    ASSERT_EQ(shapes.row_bytes[kLeft], 4 * shapes.rows[kRight]);
    for (int m = 0; m < shapes.rows[kSums]; ++m) {
      for (int n = 0; n < shapes.row_bytes[kSums] / 4; ++n) {
        float pair[2] = {0, 0};
        for (int k = 0; k < shapes.rows[kRight]; ++k)
          for (int i = 0; i < 2; ++i)
            pair[i] = std::fma(element(kLeft, m, 2 * k + i), element(kRight, k, 2 * n + i), pair[i]);
        float sum = 0;
        std::memcpy(&sum, tiles[kSums].bytes[m] + 4 * n, sizeof sum);
        sum += pair[0] + pair[1];
        std::memcpy(tiles[kSums].bytes[m] + 4 * n, &sum, sizeof sum);
      }
    }
  }
  static void transpose(const std::byte* const (&rows)[kTileRows], bfloat16* to) {
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) std::memcpy(to + 2 * (16 * i + j), rows[j] + 4 * i, 4);
  }
  static void fetch(const std::byte*) { ++num_fetched; }

 private:
  static float element(int tile, int row, int index) {
    bfloat16 e;
    std::memcpy(&e, tiles[tile].bytes[row] + 2 * index, sizeof e);
    return to_float(e);
  }
};

struct TiledCase {
  std::int64_t num_tokens, out_features, in_features;
  std::int64_t gap = 0;
  bool has_bias = false;
  std::int64_t cut = 0;    // of the weight, into two blocks
  std::int64_t begin = 0;  // first row
};

constexpr TiledCase kTiledCases[] = {
    {1, 1, 1},
    {1, 70, 96, 0, true},
    {1, 45, 75, 3, false, 20, 7},
    {2, 33, 32},
    {5, 40, 129, 5, true, 17},
    {9, 23, 70},
    {16, 32, 64},
    {17, 48, 100, 1, false, 31, 3},
    {32, 100, 40},
    {3, 300, 8200, 0, true},  // more elements than are packed at once, and more rows than have sums meanwhile
    {33, 20, 64, 2, true},
    {64, 64, 96},
    {47, 35, 1100, 1, false, 9, 2},  // two depths, the last ragged
    {270, 18, 33},                   // two rounds of tokens
    {40, 150, 70, 0, true, 33},      // of rows, too
};

TEST(LinearTiles, EachElementIsTheDotProductOfTiles) {
  for (const TiledCase& c : kTiledCases) {
    SCOPED_TRACE(fmt::format("{} tokens [{}, {}]", c.num_tokens, c.out_features, c.in_features));
    const Rows x_rows = Rows::random(c.num_tokens, c.in_features, 1, 1, c.gap);
    std::vector<bfloat16> x_bits(static_cast<std::size_t>(c.num_tokens * (c.in_features + c.gap)));
    Tensor x = x_rows;
    convert(x.data, DType::float32, x_bits.data(), DType::bfloat16, x_bits.size());
    convert(x_bits.data(), DType::bfloat16, x.data, DType::float32, x_bits.size());
    x.data = x_bits.data();
    x.dtype = DType::bfloat16;
    // The end of what may be read is the end of the allocation.
    const Elements elements(random_floats(static_cast<std::size_t>(c.out_features * c.in_features), 2),
                            DType::bfloat16);
    const std::vector<float> w = elements.floats();
    Weight weight = one_block(elements, DType::bfloat16, c.out_features, c.in_features);
    if (c.cut > 0) {
      weight.blocks[0].num_rows = c.cut;
      weight.blocks[2] = {weight.row(0), 0};
      weight.blocks[1] = {
          static_cast<const std::byte*>(weight.blocks[0].data) + static_cast<std::size_t>(c.cut) * weight.row_bytes(),
          c.out_features - c.cut};
    }
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(c.out_features), 3);
    if (c.has_bias) weight.bias = bias.data();
    Rows y(c.num_tokens, c.out_features, c.gap);
    const Tensor y_tensor = y;
    for (std::int64_t t = 0; t < c.num_tokens; ++t) std::fill_n(y.row(t), c.out_features, -7.0f);
    TiledLinear<PlainUnit>::compute({.x = x, .weight = weight, .y = y_tensor}, c.begin, c.out_features);
    for (std::int64_t t = 0; t < c.num_tokens; ++t) {
      for (std::int64_t r = 0; r < c.out_features; ++r) {
        float expected = dot_product_of_tiles(x_rows.row(t), w.data() + r * c.in_features, c.in_features);
        if (c.has_bias) expected += bias[static_cast<std::size_t>(r)];
        if (r < c.begin) expected = -7;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y.row(t)[r]), std::bit_cast<std::uint32_t>(expected))
            << "token " << t << " row " << r;
      }
    }
    EXPECT_TRUE(y.gaps_untouched());
  }
}

}  // namespace
}  // namespace heddle

// The layout of matrices in shared memory that TMA writes and WGMMA reads.
#pragma once

namespace heddle::sm90 {

// A tile of kRows rows of 16-bit elements. Column blocks [kRows, kBoxColumns] follow each other, swizzled so that
// ldmatrix and WGMMA have no bank conflicts. Aligned to 1024 bytes.
template <int kRows, int kColumns>
struct Tile {
  static constexpr int kBoxColumns = kColumns % 64 == 0 ? 64 : 32;
  static constexpr int kColumnBlocks = kColumns / kBoxColumns;
  static constexpr int kRowBytes = 2 * kBoxColumns;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static constexpr int kBytes = kColumnBlocks * kBlockBytes;
  static_assert(kColumns % kBoxColumns == 0 && kRows % 8 == 0);

  // The byte offset of the eight elements from `column` on, a multiple of 8. TMA swizzles the 16-byte pieces of a row
  // by the address bits above them.
  static __device__ int offset(int row, int column) {
    const int piece = column % kBoxColumns / 8;
    const int moved = kRowBytes == 128 ? piece ^ (row % 8) : piece ^ (row / 2 % 4);
    return column / kBoxColumns * kBlockBytes + row * kRowBytes + moved * 16;
  }
};

}  // namespace heddle::sm90

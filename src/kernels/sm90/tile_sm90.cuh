// Matrices in shared memory as the copy engine lays them and wgmma reads them.
#pragma once

namespace heddle::sm90 {

// A tile of kRows rows of 16-bit elements: column blocks [kRows, kBoxColumns] one after the other, swizzled so that
// neither ldmatrix nor wgmma meets a bank twice. Begins at a multiple of 1024 bytes.
template <int kRows, int kColumns>
struct Tile {
  static constexpr int kBoxColumns = kColumns % 64 == 0 ? 64 : 32;
  static constexpr int kColumnBlocks = kColumns / kBoxColumns;
  static constexpr int kRowBytes = 2 * kBoxColumns;
  static constexpr int kBlockBytes = kRows * kRowBytes;
  static constexpr int kBytes = kColumnBlocks * kBlockBytes;
  static_assert(kColumns % kBoxColumns == 0 && kRows % 8 == 0);

  // Of the eight elements from `column` on, a multiple of 8: the copy engine exchanges the 16-byte pieces of a row by
  // the bits of the address above them.
  static __device__ int offset(int row, int column) {
    const int piece = column % kBoxColumns / 8;
    const int moved = kRowBytes == 128 ? piece ^ (row % 8) : piece ^ (row / 2 % 4);
    return column / kBoxColumns * kBlockBytes + row * kRowBytes + moved * 16;
  }
};

}  // namespace heddle::sm90

#include "cli/wafer/kv_heat_map.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kMostColumns = 1600;
constexpr int kMostPixels = 2048;  // approximately, per side

struct Color {
  double red, green, blue;
};

// Lightness grows evenly, so the map is readable in grey, too (matplotlib's "inferno", in five points).
constexpr std::array<Color, 5> kColors{{{0, 0, 4}, {87, 16, 110}, {188, 55, 84}, {249, 142, 9}, {252, 255, 164}}};

void put_color(double share, png_byte* pixel) {
  const double place = std::clamp(share, 0.0, 1.0) * (kColors.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), kColors.size() - 2);
  const double part = place - static_cast<double>(below);
  const Color &a = kColors[below], &b = kColors[below + 1];
  pixel[0] = static_cast<png_byte>(std::lround(a.red + part * (b.red - a.red)));
  pixel[1] = static_cast<png_byte>(std::lround(a.green + part * (b.green - a.green)));
  pixel[2] = static_cast<png_byte>(std::lround(a.blue + part * (b.blue - a.blue)));
}

}  // namespace

void KvHistory::record(const KvRows& rows) {
  if (seen_++ % stride_ != 0) return;
  if (steps() == 2 * kMostColumns) {
    for (std::size_t kept = 1; kept < kMostColumns; ++kept) counts_[kept] = std::move(counts_[2 * kept]);
    counts_.resize(kMostColumns);
    stride_ *= 2;
  }
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(rows.rows()));
  for (int row = 0; row < rows.rows(); ++row) counts.push_back(rows.count(row));
  counts_.push_back(std::move(counts));
}

std::int64_t KvHistory::fullest() const {
  std::int64_t most = 0;
  for (const auto& counts : counts_) most = std::max(most, *std::ranges::max_element(counts));
  return most;
}

void write_kv_heat_map(PendingFile& file, const KvHistory& history, std::int64_t full) {
  if (history.steps() == 0) throw InputError("--heatmap: nothing was generated, so there is nothing to draw");
  if (full == 0) full = std::max<std::int64_t>(1, history.fullest());
  const int columns = std::min(history.steps(), kMostColumns);
  const int cell_width = std::clamp(960 / columns, 1, 24), cell_height = std::clamp(480 / history.rows(), 1, 24);
  const int width = columns * cell_width, height = std::min(history.rows() * cell_height, kMostPixels);

  std::vector<png_byte> pixels(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const auto step = static_cast<int>(std::int64_t{x} * history.steps() / width);
      const auto row = static_cast<int>(std::int64_t{y} * history.rows() / height);
      put_color(static_cast<double>(history.count(step, row)) / static_cast<double>(full),
                pixels.data() +
                    (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x)) * 3);
    }

  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0)
    throw_error<Failure>("--heatmap: cannot make a PNG: {}", static_cast<const char*>(image.message));
  file.write(std::as_bytes(std::span(bytes).first(size)));
  file.commit();
}

}  // namespace heddle

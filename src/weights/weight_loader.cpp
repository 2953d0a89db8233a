#include "weights/weight_loader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/stand_in.h"
#include "weights/damage.h"
#include "weights/weight_upload.h"

namespace heddle {
namespace {

// Bytes converted at a time: small enough that progress moves and that no synthetic tensor is ever whole in memory.
constexpr std::size_t kReadBytes = std::size_t{8} << 20;

bool aligned_for(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0;
}

[[noreturn]] void fail_shape(const std::string& name, const TensorInfo& info, std::span<const Extent> expected) {
  std::vector<std::int64_t> shape;
  std::vector<std::string_view> reasons;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    shape.push_back(expected[i].size);
    const bool differs = info.shape.size() != expected.size() || info.shape[i] != expected[i].size;
    if (differs && !expected[i].reason.empty()) reasons.push_back(expected[i].reason);
  }
  throw_error<InputError>("{}: tensor {} has shape {}, expected {}{}. Is this config.json from another model?",
                          info.file, quoted_name(name), shape_text(info.shape), shape_text(shape),
                          reasons.empty() ? "" : fmt::format(" ({})", fmt::join(reasons, "; ")));
}

// Number of rows of `block` to load.
std::int64_t num_rows_of(const NamedRows& block) {
  require(block.first >= 0 && block.first <= block.rows.size, "tensor {} has no row {}", block.name, block.first);
  const std::int64_t count = block.count.value_or(block.rows.size - block.first);
  require(count >= 0 && count <= block.rows.size - block.first, "tensor {} has no rows {} + {}", block.name,
          block.first, count);
  return count;
}

// Bytes of all tensors on a device: matrices in the wanted dtype, vectors in float32.
std::size_t expected_bytes(const TensorSource& source, std::optional<DType> dtype) {
  std::size_t bytes = 0;
  for (const std::string_view name : source.names()) {
    const TensorInfo& info = *source.find(name);
    const DType wanted =
        info.shape.size() < 2 ? DType::float32 : dtype.value_or(info.dtype.dtype.value_or(DType::float32));
    bytes += round_up(static_cast<std::size_t>(info.num_elements()) * size_of(wanted), WeightUpload::kAlignment);
  }
  return bytes;
}

}  // namespace

WeightLoader::WeightLoader(const TensorSource& source, WeightLoaderOptions options)
    : source_(source), options_(std::move(options)) {
  storage_.device = options_.device;
  if (options_.device.kind != DeviceKind::cpu && source.has_contents())
    upload_ = std::make_shared<WeightUpload>(source, options_.device,
                                             options_.reserved_bytes.value_or(expected_bytes(source, options_.dtype)));
}

Weight WeightLoader::matrix(std::span<const NamedRows> blocks, const Extent& in_features) {
  return matrix_of(blocks, in_features, {0, in_features.size});
}

Weight WeightLoader::matrix(std::span<const NamedRows> blocks, const Extent& in_features, Slice columns) {
  require(columns.first >= 0 && columns.count >= 0 && columns.first <= in_features.size &&
              columns.count <= in_features.size - columns.first,
          "a weight has no columns {} + {} of {}", columns.first, columns.count, in_features.size);
  return matrix_of(blocks, in_features, columns);
}

Weight WeightLoader::matrix_of(std::span<const NamedRows> blocks, const Extent& in_features, Slice columns) {
  require(!blocks.empty() && blocks.size() <= Weight::kMaxBlocks, "a weight has 1 to {} blocks, not {}",
          Weight::kMaxBlocks, blocks.size());
  std::array<const TensorInfo*, Weight::kMaxBlocks> infos{};
  for (std::size_t i = 0; i < blocks.size(); ++i)
    infos[i] = &checked(blocks[i].name, std::array{blocks[i].rows, in_features});

  Weight weight{.in_features = columns.count, .dtype = options_.dtype.value_or(*infos[0]->dtype.dtype)};
  const auto differs = [&](const TensorInfo* info) { return info != nullptr && info->dtype != infos[0]->dtype; };
  if (!options_.dtype && std::ranges::any_of(infos, differs)) weight.dtype = DType::float32;

  const bool on_gpu = options_.device.kind != DeviceKind::cpu, all_columns = columns.count == in_features.size;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const NamedRows& block = blocks[i];
    const std::int64_t count = num_rows_of(block);
    if (on_gpu)
      weight.blocks[i] = {nullptr, count};
    else if (all_columns)
      weight.blocks[i] = {load(block.name, *infos[i], block.first, count, weight.dtype), count};
    else
      weight.blocks[i] = {load_columns(block, *infos[i], columns, weight.dtype), count};
    weight.out_features += count;
  }
  storage_.size_bytes += weight.size_bytes();
  if (on_gpu) {
    weight.blocks = {};
    weight.blocks[0] = {upload(blocks, columns, in_features.size, weight.dtype), weight.out_features};
  }
  return weight;
}

// Stores the rows of all blocks one after the other in device memory: these columns, of `all_columns`.
const void* WeightLoader::upload(std::span<const NamedRows> blocks, Slice columns, std::int64_t all_columns,
                                 DType dtype) {
  if (!upload_) return stand_in_memory();
  std::int64_t rows = 0;
  for (const NamedRows& block : blocks) rows += num_rows_of(block);
  const std::size_t row_bytes = static_cast<std::size_t>(columns.count) * size_of(dtype);
  std::byte* data = upload_->allocate(static_cast<std::size_t>(rows) * row_bytes);
  std::byte* end = data;
  for (const NamedRows& block : blocks) {
    if (columns.count == all_columns)
      upload_->enqueue(block.name, block.first, num_rows_of(block), dtype, end);
    else
      upload_->enqueue_columns(block.name, block.first, num_rows_of(block), columns, dtype, end);
    end += static_cast<std::size_t>(num_rows_of(block)) * row_bytes;
  }
  report_progress();
  return data;
}

std::vector<Weight> WeightLoader::rearranged(const NamedRows& rows, const Extent& in_features,
                                             std::span<const Rearrangement> results) {
  const TensorInfo& info = checked(rows.name, std::array{rows.rows, in_features});
  const std::int64_t num_rows = num_rows_of(rows), num_columns = in_features.size;
  const DType dtype = options_.dtype.value_or(*info.dtype.dtype);
  const std::size_t element = size_of(dtype);
  const auto bytes_of = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
  std::optional<Buffer> all;
  if (source_.has_contents()) {
    all.emplace(bytes_of(num_rows * num_columns));
    copy_rows(rows.name, info, rows.first, num_rows, dtype, all->data());
  }
  std::vector<Weight> weights;
  for (const Rearrangement& result : results) {
    Weight weight{.out_features = result.rows, .in_features = result.columns, .dtype = dtype};
    storage_.size_bytes += weight.size_bytes();
    const void* data = stand_in_memory();
    if (all) {
      auto made = std::make_shared<Buffer>(weight.size_bytes());
      for (std::int64_t r = 0; r < result.rows; ++r)
        for (std::int64_t c = 0; c < result.columns; ++c) {
          const Rearrangement::Place place = result.source(r, c);
          require(place.row >= 0 && place.row < num_rows && place.column >= 0 && place.column < num_columns,
                  "tensor {} has no element ({}, {})", rows.name, place.row, place.column);
          std::memcpy(made->data() + bytes_of(r * result.columns + c),
                      all->data() + bytes_of(place.row * num_columns + place.column), element);
        }
      data = keep(std::move(made));
    }
    weight.blocks[0] = {data, result.rows};
    weights.push_back(weight);
  }
  return weights;
}

// What the host has made, where the weights are to lie.
const void* WeightLoader::keep(std::shared_ptr<Buffer> copy) {
  if (upload_) {
    std::byte* data = upload_->allocate(copy->size_bytes());
    upload_->put(copy->data(), copy->size_bytes(), data);
    return data;
  }
  const void* data = copy->data();
  storage_.owners.push_back(std::move(copy));
  return data;
}

const float* WeightLoader::vector(const std::string& name, const Extent& size) {
  const TensorInfo& info = checked(name, {&size, 1});
  storage_.size_bytes += static_cast<std::size_t>(size.size) * sizeof(float);
  if (upload_) return static_cast<const float*>(upload(std::array{NamedRows{name, size}}, {0, 1}, 1, DType::float32));
  return static_cast<const float*>(load(name, info, 0, size.size, DType::float32));
}

const float* WeightLoader::finite_vector(const std::string& name, const Extent& size) {
  const float* const data = vector(name, size);
  if (!source_.has_contents()) return data;
  if (const std::optional<std::string> damage = find_damage(source_, name)) throw InputError(*damage);
  return data;
}

const float* WeightLoader::vector(std::span<const NamedRows> blocks) {
  std::int64_t size = 0;
  for (const NamedRows& block : blocks) {
    checked(block.name, {&block.rows, 1});
    size += num_rows_of(block);
  }
  storage_.size_bytes += static_cast<std::size_t>(size) * sizeof(float);
  if (!source_.has_contents()) return reinterpret_cast<const float*>(stand_in_memory());
  if (upload_) return static_cast<const float*>(upload(blocks, {0, 1}, 1, DType::float32));
  auto stacked = std::make_shared<Buffer>(static_cast<std::size_t>(size) * sizeof(float));
  std::byte* end = stacked->data();
  for (const NamedRows& block : blocks) {
    const std::int64_t count = num_rows_of(block);
    if (count == 0) continue;
    copy_rows(block.name, *source_.find(block.name), block.first, count, DType::float32, end);
    end += static_cast<std::size_t>(count) * sizeof(float);
  }
  const auto* data = reinterpret_cast<const float*>(stacked->data());
  storage_.owners.push_back(std::move(stacked));
  return data;
}

DType WeightLoader::stored_dtype(std::span<const NamedRows> blocks) {
  std::optional<DType> all;
  for (const NamedRows& block : blocks) {
    const DType stored = *checked(block.name, {&block.rows, 1}).dtype.dtype;
    if (all.value_or(stored) != stored) return DType::float32;
    all = stored;
  }
  return all.value_or(DType::float32);
}

const float* WeightLoader::constants(std::span<const float> values) {
  storage_.size_bytes += values.size_bytes();
  if (!source_.has_contents()) return reinterpret_cast<const float*>(stand_in_memory());
  if (upload_) {
    std::byte* data = upload_->allocate(values.size_bytes());
    upload_->put(values.data(), values.size_bytes(), data);
    return reinterpret_cast<const float*>(data);
  }
  auto copy = std::make_shared<std::vector<float>>(values.begin(), values.end());
  const float* data = copy->data();
  storage_.owners.push_back(std::move(copy));
  return data;
}

const void* const* WeightLoader::pointers(std::span<const void* const> addresses) {
  if (options_.device.kind == DeviceKind::cpu) return nullptr;
  storage_.size_bytes += addresses.size_bytes();
  if (!upload_) return reinterpret_cast<const void* const*>(stand_in_memory());
  std::byte* data = upload_->allocate(addresses.size_bytes());
  upload_->put(addresses.data(), addresses.size_bytes(), data);
  return reinterpret_cast<const void* const*>(data);
}

WeightStorage WeightLoader::finish(std::span<const std::string_view> harmless_suffixes) {
  std::vector<std::string_view> extra = source_.names();
  std::erase_if(extra, [&](std::string_view name) {
    const auto ends_name = [&](std::string_view suffix) { return name.ends_with(suffix); };
    return asked_for_.contains(name) || std::ranges::any_of(harmless_suffixes, ends_name);
  });
  if (!extra.empty())
    throw_error<InputError>("{}: tensor {}{} belongs to no part of this model. Is this config.json from another model?",
                            source_.find(extra[0])->file, quoted_name(extra[0]),
                            extra.size() == 1 ? "" : fmt::format(" (one of {} such)", extra.size()));
  if (upload_) {
    bool done = false;
    while (!done) {
      done = upload_->wait();
      report_progress();
    }
    storage_.owners = upload_->take_memory();
    upload_.reset();
  }
  return std::exchange(storage_, {});
}

// Finds the tensor and checks its shape, and that its dtype can be loaded.
const TensorInfo& WeightLoader::checked(const std::string& name, std::span<const Extent> shape) {
  const TensorInfo* info = source_.find(name);
  if (info == nullptr)
    throw_error<InputError>("{}: tensor {} is missing. Is this config.json from another model?", source_.where(),
                            quoted_name(name));
  if (!std::ranges::equal(info->shape, shape, {}, {}, &Extent::size)) fail_shape(name, *info, shape);
  if (!info->dtype.dtype)
    throw_error<InputError>("{}: tensor {} has dtype {}, expected F32, F16 or BF16", info->file, quoted_name(name),
                            info->dtype.name);
  asked_for_.insert(name);
  return *info;
}

// Rows of a tensor in `dtype`; a view if possible. Storage keeps them.
const void* WeightLoader::load(const std::string& name, const TensorInfo& info, std::int64_t first_row,
                               std::int64_t num_rows, DType dtype) {
  if (num_rows == 0) return nullptr;
  if (!source_.has_contents()) return stand_in_memory();
  const DType stored = *info.dtype.dtype;
  const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(info.shape[0]);
  const std::size_t row_elements = row_bytes / size_of(stored);
  if (stored == dtype) {
    TensorRows all = source_.rows(name, first_row, num_rows);
    if (aligned_for(all.bytes.data(), dtype)) {
      storage_.owners.push_back(std::move(all.owner));
      // Read now, so that the time is spent during loading, with progress visible.
      for (std::size_t done = 0; done < all.bytes.size(); done += kReadBytes) {
        const auto piece = all.bytes.subspan(done, std::min(kReadBytes, all.bytes.size() - done));
        read_mapped(piece);
        advance(piece.size());
      }
      return all.bytes.data();
    }
  }
  auto copy = std::make_shared<Buffer>(static_cast<std::size_t>(num_rows) * row_elements * size_of(dtype));
  copy_rows(name, info, first_row, num_rows, dtype, copy->data());
  const void* data = copy->data();
  storage_.owners.push_back(std::move(copy));
  return data;
}

// Some columns of a tensor's rows in `dtype`: a copy without gaps.
const void* WeightLoader::load_columns(const NamedRows& rows, const TensorInfo& info, Slice columns, DType dtype) {
  const std::int64_t num_rows = num_rows_of(rows);
  if (num_rows == 0 || columns.count == 0) return nullptr;
  if (!source_.has_contents()) return stand_in_memory();
  const DType stored = *info.dtype.dtype;
  const std::size_t stored_bytes = static_cast<std::size_t>(columns.count) * size_of(stored);  // of a row
  const std::size_t row_bytes = static_cast<std::size_t>(columns.count) * size_of(dtype);
  auto copy = std::make_shared<Buffer>(static_cast<std::size_t>(num_rows) * row_bytes);
  const auto piece_rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kReadBytes / stored_bytes));
  std::vector<std::byte> piece;  // as stored
  if (stored != dtype) piece.resize(static_cast<std::size_t>(std::min(piece_rows, num_rows)) * stored_bytes);
  for (std::int64_t done = 0; done < num_rows;) {
    const std::int64_t count = std::min(piece_rows, num_rows - done);
    std::byte* const destination = copy->data() + static_cast<std::size_t>(done) * row_bytes;
    source_.read_columns(rows.name, rows.first + done, count, columns, stored == dtype ? destination : piece.data());
    if (stored != dtype)
      convert(piece.data(), stored, destination, dtype, static_cast<std::size_t>(count * columns.count));
    done += count;
    advance(static_cast<std::size_t>(count) * stored_bytes);
  }
  const void* data = copy->data();
  storage_.owners.push_back(std::move(copy));
  return data;
}

void WeightLoader::copy_rows(const std::string& name, const TensorInfo& info, std::int64_t first_row,
                             std::int64_t num_rows, DType dtype, std::byte* destination) {
  const DType stored = *info.dtype.dtype;
  const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(info.shape[0]);
  const std::size_t row_elements = row_bytes / size_of(stored);
  const auto piece_rows =
      static_cast<std::int64_t>(std::max<std::size_t>(1, kReadBytes / std::max<std::size_t>(1, row_bytes)));
  for (std::int64_t done = 0; done < num_rows;) {
    const std::int64_t count = std::min(piece_rows, num_rows - done);
    const TensorRows piece = source_.rows(name, first_row + done, count);
    read_mapped(piece.bytes);  // throws if the file was truncated, instead of ending with SIGBUS
    const std::size_t num_elements = static_cast<std::size_t>(count) * row_elements;
    convert(piece.bytes.data(), stored, destination + static_cast<std::size_t>(done) * row_elements * size_of(dtype),
            dtype, num_elements);
    done += count;
    advance(piece.bytes.size());
  }
}

void WeightLoader::advance(std::size_t num_bytes) {
  bytes_done_ += num_bytes;
  report_progress();
}

void WeightLoader::report_progress() const {
  if (options_.on_progress) options_.on_progress(bytes_done_ + (upload_ ? upload_->bytes_done() : 0));
}

}  // namespace heddle

#include "weights/weight_upload.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/stream.h"

namespace heddle {
namespace {

constexpr std::size_t kUploadPieceBytes = std::size_t{2} << 20;  // large enough for the bus, small enough to overlap
constexpr std::size_t kBytesOfThread = std::size_t{16} << 20;    // at least this much work per thread
constexpr std::size_t kMoreMemory = std::size_t{2} << 20;
constexpr unsigned kMaxUploadThreads = 12;  // enough to read the page cache at the rate of the bus
constexpr std::size_t kSlots = 2;           // per thread: one is filled while the other is copied

std::size_t largest_row_bytes(const TensorSource& source) {
  std::size_t largest = 0;
  for (const std::string_view name : source.names()) {
    const TensorInfo& info = *source.find(name);
    if (info.shape.empty() || info.shape[0] < 1) continue;
    const auto elements = static_cast<std::size_t>(info.num_elements() / info.shape[0]);
    largest = std::max(largest, elements * sizeof(float));  // in the widest dtype
  }
  return largest;
}

}  // namespace

WeightUpload::WeightUpload(const TensorSource& source, Device device, std::size_t expected_bytes)
    : source_(source),
      device_(device),
      stream_(device),
      slot_bytes_(std::max(kUploadPieceBytes, largest_row_bytes(source))),
      copies_(device) {
  if (expected_bytes > 0) memory_.push_back(std::make_shared<Buffer>(expected_bytes, device));
}

WeightUpload::~WeightUpload() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_available_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::byte* WeightUpload::allocate(std::size_t size_bytes) {
  const std::size_t size = round_up(size_bytes, kAlignment);
  if (memory_.empty() || size > memory_.back()->size_bytes() - used_bytes_) {
    memory_.push_back(std::make_shared<Buffer>(std::max(size, kMoreMemory), device_));
    used_bytes_ = 0;
  }
  std::byte* result = memory_.back()->data() + used_bytes_;
  used_bytes_ += size;
  return result;
}

std::size_t WeightUpload::elements_of(const Piece& piece) const {
  const TensorInfo& info = *source_.find(piece.name);
  const std::int64_t of_row = piece.columns ? piece.columns->count : info.num_elements() / info.shape[0];
  return static_cast<std::size_t>(piece.num_rows * of_row);
}

void WeightUpload::enqueue(const std::string& name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
                           std::byte* destination) {
  if (num_rows == 0) return;
  const Piece all{name, first_row, num_rows, {}, dtype, destination};
  if (source_.make_rows(name, first_row, num_rows, dtype, destination, stream_))
    bytes_done_ += elements_of(all) * size_of(*source_.find(name)->dtype.dtype);
  else
    add(all);
}

void WeightUpload::enqueue_columns(const std::string& name, std::int64_t first_row, std::int64_t num_rows,
                                   Slice columns, DType dtype, std::byte* destination) {
  if (num_rows == 0 || columns.count == 0) return;
  const Piece all{name, first_row, num_rows, columns, dtype, destination};
  if (source_.make_columns(name, first_row, num_rows, columns, dtype, destination, stream_))
    bytes_done_ += elements_of(all) * size_of(*source_.find(name)->dtype.dtype);
  else
    add(all);
}

void WeightUpload::add(Piece rest) {
  const std::size_t row_bytes = elements_of(rest) / static_cast<std::size_t>(rest.num_rows) * size_of(rest.dtype);
  const auto piece_rows =
      static_cast<std::int64_t>(std::max<std::size_t>(1, slot_bytes_ / std::max<std::size_t>(1, row_bytes)));
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    while (rest.num_rows > 0) {
      Piece piece = rest;
      piece.num_rows = std::min(piece_rows, rest.num_rows);
      rest.first_row += piece.num_rows;
      rest.num_rows -= piece.num_rows;
      rest.destination += static_cast<std::size_t>(piece.num_rows) * row_bytes;
      pieces_.push_back(std::move(piece));
      ++unfinished_;
    }
  }
  start_threads();
  work_available_.notify_all();
}

void WeightUpload::put(const void* source, std::size_t size_bytes, std::byte* destination) {
  enqueue_copy(stream_, destination, source, size_bytes);
  stream_.synchronize();
}

void WeightUpload::start_threads() {
  if (!threads_.empty()) return;
  std::size_t bytes = 0;
  for (const auto& buffer : memory_) bytes += buffer->size_bytes();
  const auto useful = static_cast<unsigned>(std::min<std::size_t>(ceil_div(bytes, kBytesOfThread), kMaxUploadThreads));
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), 1u, std::max(useful, 1u));
  slots_ = PinnedBuffer(checked_mul(std::size_t{wanted} * kSlots, slot_bytes_, "pinned memory for an upload"));
  while (threads_.size() < wanted) threads_.emplace_back([this, thread = threads_.size()] { work(thread); });
}

bool WeightUpload::wait() {
  std::unique_lock lock(mutex_);
  const bool done =
      progress_.wait_for(lock, std::chrono::milliseconds(100), [&] { return unfinished_ == 0 || error_ != nullptr; });
  if (error_) std::rethrow_exception(error_);
  lock.unlock();
  if (done) stream_.synchronize();
  return done;
}

std::vector<std::shared_ptr<const void>> WeightUpload::take_memory() {
  std::vector<std::shared_ptr<const void>> owners(memory_.begin(), memory_.end());
  memory_.clear();
  used_bytes_ = 0;
  return owners;
}

void WeightUpload::work(std::size_t thread) {
  try {
    upload_pieces(thread);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    stop_ = true;
  }
  work_available_.notify_all();
  progress_.notify_all();
}

bool WeightUpload::take(Piece& piece) {
  std::unique_lock lock(mutex_);
  work_available_.wait(lock, [&] { return stop_ || !pieces_.empty(); });
  if (stop_) return false;
  piece = std::move(pieces_.front());
  pieces_.pop_front();
  return true;
}

void WeightUpload::upload_pieces(std::size_t thread) {
  struct Slot {
    std::byte* memory;
    Event copied;
    bool in_use = false;
  };
  std::byte* const memory = slots_.data() + thread * kSlots * slot_bytes_;
  std::array<Slot, kSlots> slots{{{memory, Event(device_)}, {memory + slot_bytes_, Event(device_)}}};
  std::size_t next = 0;
  const auto finish = [&](Slot& slot) {
    if (!slot.in_use) return;
    slot.copied.synchronize();
    slot.in_use = false;
    const std::lock_guard lock(mutex_);
    if (--unfinished_ == 0) progress_.notify_all();
  };
  Piece piece;
  while (true) {
    {
      // Before a thread sleeps because there are no pieces, it completes its own: wait() relies on that.
      std::unique_lock lock(mutex_);
      const bool none = pieces_.empty() && !stop_;
      lock.unlock();
      if (none)
        for (Slot& slot : slots) finish(slot);
    }
    if (!take(piece)) return;
    Slot& slot = slots[next++ % kSlots];
    finish(slot);
    fill(piece, slot.memory);
    const std::size_t elements = elements_of(piece);
    {
      const std::lock_guard lock(copies_mutex_);
      enqueue_copy(copies_, piece.destination, slot.memory, elements * size_of(piece.dtype));
      slot.copied.record(copies_);
    }
    slot.in_use = true;
    bytes_done_ += elements * size_of(*source_.find(piece.name)->dtype.dtype);
  }
}

void WeightUpload::fill(const Piece& piece, std::byte* destination) const {
  const DType stored = *source_.find(piece.name)->dtype.dtype;
  const std::size_t elements = elements_of(piece);
  if (piece.columns) {
    std::vector<std::byte> as_stored(stored == piece.dtype ? 0 : elements * size_of(stored));
    std::byte* const read = stored == piece.dtype ? destination : as_stored.data();
    source_.read_columns(piece.name, piece.first_row, piece.num_rows, *piece.columns, read);
    if (stored != piece.dtype) convert(read, stored, destination, piece.dtype, elements);
    return;
  }
  if (stored == piece.dtype) {
    source_.read_rows(piece.name, piece.first_row, piece.num_rows, destination);
    return;
  }
  const TensorRows rows = source_.rows(piece.name, piece.first_row, piece.num_rows);
  read_mapped(rows.bytes);
  convert(rows.bytes.data(), stored, destination, piece.dtype, elements);
}

}  // namespace heddle

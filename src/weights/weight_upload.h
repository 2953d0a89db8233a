// Uploads weights into GPU memory: several threads read, generate or convert them into pinned memory, piece by piece,
// while earlier pieces are copied over the bus.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/pinned_buffer.h"
#include "base/stream.h"
#include "weights/slice.h"
#include "weights/tensor_source.h"

namespace heddle {

class WeightUpload {
 public:
  // `source` must outlive the upload. Allocates `expected_bytes` on the device at once. Throws Failure when the device
  // has too little memory.
  WeightUpload(const TensorSource& source, Device device, std::size_t expected_bytes);
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  ~WeightUpload();  // cancels what is not uploaded

  // Allocates device memory, aligned to kAlignment. Throws Failure when there is none left.
  static constexpr std::size_t kAlignment = 256;
  std::byte* allocate(std::size_t size_bytes);

  // Uploads rows [first_row, first_row + num_rows) of a tensor, in `dtype`, to `destination`; they are valid once
  // finish() has returned. Returns at once. Rethrows the error of an earlier piece.
  void enqueue(const std::string& name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
               std::byte* destination);

  // The same with some columns of a matrix only, row after row without gaps; nothing else is read.
  void enqueue_columns(const std::string& name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                       DType dtype, std::byte* destination);

  // Copies `size_bytes` from host memory and waits for the copy.
  void put(const void* source, std::size_t size_bytes, std::byte* destination);

  std::size_t bytes_done() const { return bytes_done_; }  // of stored tensors

  // Waits up to a tenth of a second; returns true when everything is uploaded. Rethrows the error of a piece.
  bool wait();

  // Returns the owners of the memory. Call after finish; the upload is then empty.
  std::vector<std::shared_ptr<const void>> take_memory();

 private:
  struct Piece {
    std::string name;
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    std::optional<Slice> columns;  // nothing: all
    DType dtype = DType::float32;
    std::byte* destination = nullptr;
  };

  void add(Piece rest);  // cut into pieces of a slot
  void start_threads();
  void work(std::size_t thread);
  void upload_pieces(std::size_t thread);
  bool take(Piece& piece);
  void fill(const Piece& piece, std::byte* destination) const;
  std::size_t elements_of(const Piece& piece) const;

  const TensorSource& source_;
  Device device_;
  Stream stream_;  // of the calling thread: for data that the device generates
  std::vector<std::shared_ptr<Buffer>> memory_;
  std::size_t used_bytes_ = 0;  // of the last of memory_
  std::size_t slot_bytes_;      // of pinned memory, for one piece
  PinnedBuffer slots_;          // [threads][kSlots][slot_bytes_], once there are threads
  Stream copies_;               // shared by all threads, which is faster; destroyed before its buffers
  std::mutex copies_mutex_;

  std::mutex mutex_;
  std::condition_variable work_available_;
  std::condition_variable progress_;
  std::deque<Piece> pieces_;
  std::size_t unfinished_ = 0;  // pieces that are not on the device yet
  std::exception_ptr error_;
  bool stop_ = false;
  std::atomic<std::size_t> bytes_done_{0};
  std::vector<std::thread> threads_;
};

}  // namespace heddle

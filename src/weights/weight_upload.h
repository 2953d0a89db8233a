// Brings weights into a GPU's memory: several threads read, make or convert them into pinned memory, piece by piece,
// while what they did before is on its way over the bus.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/pinned_buffer.h"
#include "base/stream.h"
#include "weights/tensor_source.h"

namespace heddle {

class WeightUpload {
 public:
  // `source` must outlive the upload. `expected_bytes` on the device are allocated at once. Throws Failure when the
  // device has not that much memory.
  WeightUpload(const TensorSource& source, Device device, std::size_t expected_bytes);
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  ~WeightUpload();  // gives up what is not uploaded

  // Memory of the device, aligned to kAlignment. Throws Failure when there is no more.
  static constexpr std::size_t kAlignment = 256;
  std::byte* allocate(std::size_t size_bytes);

  // Rows [first_row, first_row + num_rows) of a tensor, in `dtype`, will lie at `destination` once finish() has
  // returned. Returns at once; throws what an earlier piece ended with.
  void enqueue(const std::string& name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
               std::byte* destination);

  // Copies `size_bytes` of the host's memory and waits for it.
  void put(const void* source, std::size_t size_bytes, std::byte* destination);

  std::size_t bytes_done() const { return bytes_done_; }  // of what is stored

  // Waits up to a tenth of a second; true when all is uploaded. Throws what a piece ended with.
  bool wait();

  // What holds the memory. After finish; the upload is then empty.
  std::vector<std::shared_ptr<const void>> take_memory();

 private:
  struct Piece {
    std::string name;
    std::int64_t first_row = 0;
    std::int64_t num_rows = 0;
    DType dtype = DType::float32;
    std::byte* destination = nullptr;
  };

  void start_threads();
  void work(std::size_t thread);
  void upload_pieces(std::size_t thread);
  bool take(Piece& piece);
  void fill(const Piece& piece, std::byte* destination) const;
  std::size_t row_elements(const TensorInfo& info) const;

  const TensorSource& source_;
  Device device_;
  Stream stream_;  // of the thread that calls: what the device makes itself
  std::vector<std::shared_ptr<Buffer>> memory_;
  std::size_t used_bytes_ = 0;  // of the last of memory_
  std::size_t slot_bytes_;      // of pinned memory, for one piece
  PinnedBuffer slots_;          // [threads][kSlots][slot_bytes_], once there are threads
  Stream copies_;               // of all threads, which the bus likes better; ends before what it copies from and to
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

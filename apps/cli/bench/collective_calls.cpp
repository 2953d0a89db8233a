// bench collective: the calls, and their timing on the CPU.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/copy.h"
#include "base/deadline.h"
#include "base/error.h"
#include "cli/bench/collective.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/barrier.h"
#include "collectives/broadcast.h"
#include "collectives/reduce_scatter.h"
#include "fabric/nvlink/nccl_collectives.h"
#include "fabric/symmetric_heap.h"

namespace heddle {
namespace {

// Total size of distinct buffers where one is smaller: more than the L2 cache of a GPU.
constexpr std::size_t kRegionOnGpu = std::size_t{256} << 20;
constexpr int kPairsOnCpu = 4;

// Input of rank `rank`: multiples of 1/2 between -1 and 1, a function of the index, so that any rank can compute the
// expected sum.
float value_at(int rank, std::size_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(rank) * 0x9e3779b9u;
  x ^= x >> 15;
  x *= 0x85ebca6bu;
  return static_cast<float>(static_cast<std::int32_t>(x)) * 0x1p-31f;
}

void fill(std::vector<std::byte>& bytes, DType dtype, int rank) {
  constexpr std::size_t kPeriod = 1 << 16;
  std::vector<float> values(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) values[i] = value_at(rank, i);
  const std::size_t size = size_of(dtype);
  for (std::size_t at = 0; at < bytes.size(); at += kPeriod * size)
    convert(values.data(), DType::float32, bytes.data() + at, dtype, std::min(kPeriod, (bytes.size() - at) / size));
}

}  // namespace

struct CollectiveBuffers::Storage {
  Buffer in, out;
};

CollectiveBuffers::CollectiveBuffers(Communicator& communicator, Stream& stream, Memory memory, std::size_t most_bytes,
                                     DType dtype)
    : communicator_(communicator),
      stream_(stream),
      memory_(memory),
      region_bytes_(region_bytes(communicator.fabric().device(), most_bytes)),
      dtype_(dtype),
      storage_(std::make_unique<Storage>()) {
  if (memory == Memory::symmetric) {
    in_ = communicator.fabric().allocate(region_bytes_).data;
    out_ = communicator.fabric().allocate(region_bytes_).data;
  } else {
    storage_->in = Buffer(region_bytes_, communicator.fabric().device());
    storage_->out = Buffer(region_bytes_, communicator.fabric().device());
    in_ = storage_->in.data();
    out_ = storage_->out.data();
  }
  std::vector<std::byte> values(region_bytes_);
  fill(values, dtype, communicator.rank());
  enqueue_copy(stream, in_, values.data(), region_bytes_);
  enqueue_copy(stream, out_, values.data(), region_bytes_);
  communicator.fabric().synchronize(stream);
  communicator.fabric().meet();
}

CollectiveBuffers::~CollectiveBuffers() = default;

std::size_t CollectiveBuffers::region_bytes(Device device, std::size_t most_bytes) {
  const std::size_t bytes = device.kind == DeviceKind::cpu ? most_bytes : std::max(most_bytes, kRegionOnGpu);
  return round_up(bytes, SymmetricHeap::kAlignment);
}

std::byte* vendor_window(VendorCollectives& vendor, std::size_t bytes) {
  try {
    return vendor.allocate_window(bytes);
  } catch (const Timeout&) {
    throw;
  } catch (const LostDevice&) {
    throw;
  } catch (const Failure&) {
    return nullptr;
  }
}

void CollectiveBuffers::use_vendor_windows() {
  in_ = communicator_.vendor().allocate_window(region_bytes_);
  out_ = communicator_.vendor().allocate_window(region_bytes_);
  std::vector<std::byte> values(region_bytes_);
  fill(values, dtype_, communicator_.rank());
  enqueue_copy(stream_, in_, values.data(), region_bytes_);
  communicator_.fabric().synchronize(stream_);
  communicator_.fabric().meet();
}

CollectiveBuffers::Pair CollectiveBuffers::pair(std::size_t bytes, int i) const {
  std::size_t pairs = region_bytes_ / bytes;
  if (communicator_.fabric().device().kind == DeviceKind::cpu) pairs = std::min<std::size_t>(pairs, kPairsOnCpu);
  const std::size_t offset = static_cast<std::size_t>(i) % std::max<std::size_t>(1, pairs) * bytes;
  return {in_ + offset, out_ + offset};
}

std::size_t CollectiveBuffers::count_of(Collective collective, std::size_t bytes) const {
  const bool pieces = collective != Collective::all_reduce && collective != Collective::broadcast;
  return bytes / size_of(dtype_) / (pieces ? static_cast<std::size_t>(communicator_.size()) : 1);
}

void CollectiveBuffers::call(Collective collective, std::size_t bytes, int i) {
  const auto [in, out] = pair(bytes, i);
  const std::size_t count = count_of(collective, bytes);
  switch (collective) {
    case Collective::all_reduce:
      return all_reduce(communicator_, {in, out, count, dtype_, memory_}, stream_);
    case Collective::reduce_scatter:
      return reduce_scatter(communicator_, {in, out, count, dtype_, memory_}, stream_);
    case Collective::all_gather:
      return all_gather(communicator_, {in, out, count, dtype_, memory_}, stream_);
    case Collective::all_to_all:
      return all_to_all(communicator_, {in, out, count, dtype_, memory_}, stream_);
    case Collective::broadcast:
      return broadcast(communicator_, {in, out, count, dtype_, 0, memory_}, stream_);
    case Collective::barrier:
      return barrier(communicator_, stream_);
  }
}

void CollectiveBuffers::call_vendor(Collective collective, std::size_t bytes, int i) {
  const auto [in, out] = pair(bytes, i);
  const std::size_t count = count_of(collective, bytes);
  VendorCollectives& vendor = communicator_.vendor();
  switch (collective) {
    case Collective::all_reduce:
      return vendor.all_reduce(stream_, out, in, count, dtype_);
    case Collective::reduce_scatter:
      return vendor.reduce_scatter(stream_, out, in, count, dtype_);
    case Collective::all_gather:
      return vendor.all_gather(stream_, out, in, count, dtype_);
    case Collective::all_to_all:
      return vendor.all_to_all(stream_, out, in, count, dtype_);
    case Collective::broadcast:
      return vendor.broadcast(stream_, 0, out, in, count, dtype_);
    case Collective::barrier:
      throw InvalidArgument("NCCL has no barrier");
  }
}

void CollectiveBuffers::check_all_reduce(std::size_t bytes, int i) {
  const std::size_t size = size_of(dtype_), count = bytes / size;
  std::vector<std::byte> got(bytes, std::byte{0x5a});  // differs from what an earlier call may have left
  const auto [in, out] = pair(bytes, i);
  enqueue_copy(stream_, out, got.data(), bytes);
  call(Collective::all_reduce, bytes, i);
  enqueue_copy(stream_, got.data(), out, bytes);
  communicator_.fabric().synchronize(stream_);
  const std::size_t first = static_cast<std::size_t>(out - out_) / size;
  for (std::size_t k = 0; k < count; k += std::max<std::size_t>(1, count / 257)) {
    float sum = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      const float exact = value_at(rank, (first + k) % (1 << 16));
      std::uint32_t stored;
      float value;
      convert(&exact, DType::float32, &stored, dtype_, 1);
      convert(&stored, dtype_, &value, DType::float32, 1);
      sum = rank == 0 ? value : sum + value;
    }
    std::uint32_t want = 0;
    convert(&sum, DType::float32, &want, dtype_, 1);
    if (std::memcmp(&want, got.data() + k * size, size) != 0)
      throw_error<Failure>("all_reduce of {} bytes is wrong at element {} on rank {}", bytes, k, communicator_.rank());
  }
}

namespace {

// In any case, releases the stream's worker and waits for it before what it refers to is destroyed.
struct LetGo {
  std::atomic<bool>& go;
  Stream& stream;

  ~LetGo() {
    go = true;
    try {
      stream.synchronize();
    } catch (const std::exception&) {  // the error that ended the measurement has already been thrown
    }
  }
};

}  // namespace

double seconds_per_call(Communicator& communicator, Stream& stream, int calls, FunctionRef<void(int)> call) {
  using Clock = std::chrono::steady_clock;
  // If all calls fit into the queue, the worker starts when all are enqueued, and never sleeps between them.
  std::atomic<bool> go = calls == 1;
  Clock::time_point begin, end;
  const LetGo let_go{go, stream};
  stream.enqueue([&go, deadline = Deadline::after(kLongestWait)](ThreadPool&) {
    while (!go && !deadline.passed()) std::this_thread::yield();
  });
  barrier(communicator, stream);
  stream.enqueue([&begin](ThreadPool&) { begin = Clock::now(); });
  for (int i = 0; i < calls; ++i) call(i);
  stream.enqueue([&end](ThreadPool&) { end = Clock::now(); });
  go = true;
  communicator.fabric().synchronize(stream);
  return std::chrono::duration<double>(end - begin).count() / calls;
}

}  // namespace heddle

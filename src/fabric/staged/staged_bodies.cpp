#include "fabric/staged/staged_bodies.h"

#include "device/enqueue_body.h"
#ifdef __CUDACC__
#include "base/cuda_call.h"
#endif

namespace heddle::staged {
namespace {

constexpr BodyShape kOneThread{.blocks = 1, .threads = 1};

struct Set {
  std::uint64_t* flag;
  std::uint64_t value;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) atomic_store(flag, value);
  }
};

struct Add {
  std::uint64_t* flag;
  std::uint64_t value;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) atomic_add(flag, value);
  }
};

struct CopyWord {
  std::uint64_t* to;
  const std::uint64_t* from;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) atomic_store<Order::relaxed>(to, atomic_load<Order::relaxed>(from));
  }
};

struct Wait {
  WaitLimit limit;
  WaitReason reason;
  const std::uint64_t* flag;
  std::uint64_t target;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) static_cast<void>(spin_until(limit, reason, flag, target));
  }
};

struct WaitNext {
  WaitLimit limit;
  WaitReason reason;
  Semaphore* semaphore;

  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
    if (group.lane() == 0) static_cast<void>(take_next(limit, reason, *semaphore));
  }
};

}  // namespace

void enqueue_set(Stream& stream, std::uint64_t* flag, std::uint64_t value) {
  enqueue_body(stream, kOneThread, Set{flag, value});
}

void enqueue_add(Stream& stream, std::uint64_t* flag, std::uint64_t value) {
  enqueue_body(stream, kOneThread, Add{flag, value});
}

void enqueue_copy_word(Stream& stream, std::uint64_t* to, const std::uint64_t* from) {
  enqueue_body(stream, kOneThread, CopyWord{to, from});
}

void enqueue_wait(Stream& stream, const WaitLimit& limit, const WaitReason& reason, const std::uint64_t* flag,
                  std::uint64_t target) {
  enqueue_body(stream, kOneThread, Wait{limit, reason, flag, target});
}

void enqueue_wait_next(Stream& stream, const WaitLimit& limit, const WaitReason& reason, Semaphore* semaphore) {
  enqueue_body(stream, kOneThread, WaitNext{limit, reason, semaphore});
}

bool is_captured([[maybe_unused]] const Stream& stream) {
#ifdef __CUDACC__
  if (stream.device().kind == DeviceKind::cuda) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
#endif
  return false;
}

}  // namespace heddle::staged

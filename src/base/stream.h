// Streams and events: the order in which a device works, the same on the CPU and on CUDA.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "base/deadline.h"
#include "base/device.h"

namespace heddle {

class Event;
class SpanSink;
class ThreadPool;
struct CpuQueue;
struct EventState;
struct WaitRecord;

// Whether a task still runs when an earlier one of its stream has failed: work does not, what others wait for does.
enum class AfterError : std::uint8_t { skip, run };

// One piece of work in a CPU stream's queue: a callable of up to kTaskBytes, stored in place.
class Task {
 public:
  static constexpr std::size_t kTaskBytes = 448;
  static constexpr std::size_t kAlignment = 16;

  Task() = default;
  template <class F>
  // The constraint leaves the move constructor alone
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task>) explicit Task(F&& function) {
    using Stored = std::decay_t<F>;
    static_assert(sizeof(Stored) <= kTaskBytes, "pass large data by pointer into the arena");
    static_assert(alignof(Stored) <= kAlignment);
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    ::new (static_cast<void*>(storage_)) Stored(std::forward<F>(function));
    call_ = [](void* storage, ThreadPool& pool) { (*static_cast<Stored*>(storage))(pool); };
    relocate_ = [](void* from, void* to) {
      if (to != nullptr) ::new (to) Stored(std::move(*static_cast<Stored*>(from)));
      static_cast<Stored*>(from)->~Stored();
    };
  }
  Task(Task&& other) noexcept { *this = std::move(other); }
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    reset();
    if (other.call_ == nullptr) return *this;
    other.relocate_(other.storage_, storage_);
    call_ = std::exchange(other.call_, nullptr);
    relocate_ = other.relocate_;
    return *this;
  }
  ~Task() { reset(); }

  void operator()(ThreadPool& pool) { call_(storage_, pool); }

 private:
  void reset() {
    if (call_ != nullptr) relocate_(storage_, nullptr);
    call_ = nullptr;
  }

  void (*call_)(void*, ThreadPool&) = nullptr;
  void (*relocate_)(void*, void*) = nullptr;  // moves to the second address if there is one, and destroys the first
  alignas(kAlignment) std::byte storage_[kTaskBytes];
};

// An in-order queue of work: a CPU worker thread, or a CUDA stream. Work of one stream runs one after the other, each
// seeing all that the earlier wrote. Calls from several host threads are safe; their order is then theirs to settle.
class Stream {
 public:
  // A CPU stream, whose tasks run their loops on `pool`, which must outlive it; several streams may share one pool.
  explicit Stream(ThreadPool& pool);
  // A CUDA stream on `device`. Throws Failure when the device is not there; InvalidArgument in a build without CUDA.
  explicit Stream(Device device, StreamPriority priority = StreamPriority::normal);
  // A stream of `device`, which need not be there, that takes no work: of a dry run (kernels/dry_run.h). What enqueues on
  // it throws InvalidArgument.
  static Stream refusing(Device device);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();  // waits until the queue is empty, without a deadline: a destructor could do nothing about it

  Device device() const { return device_; }

  // CPU streams: runs task(ThreadPool&) after all that was enqueued before. Allocates nothing; waits while the queue
  // is full. If a task throws, later tasks are skipped until synchronize() has rethrown.
  template <class F>
  void enqueue(F&& task, AfterError after_error = AfterError::skip) {
    push(Task(std::forward<F>(task)), after_error);
  }

  // What is enqueued from now on starts after `event`, as recorded last before this call, has completed.
  // Throws InvalidArgument when the event was never recorded or belongs to another device. On the CPU a task of this
  // stream waits, until kLongestWait, so a stream must not wait on work that is enqueued after it.
  void wait(const Event& event);

  // Returns when all that was enqueued is done, and rethrows the first error of a task. Throws Timeout.
  void synchronize(Deadline deadline = Deadline::after(kLongestWait));

  // The cudaStream_t. Throws InvalidArgument unless it is a CUDA stream that takes work.
  void* native() const;

  // Where spans of this stream's work go (base/trace.h); null: nowhere.
  SpanSink* span_sink() const { return span_sink_; }
  void set_span_sink(SpanSink* sink) { span_sink_ = sink; }

  // Where a wait in this stream's work reports that it gave up (device/wait_record.h). Whoever owns the record looks at
  // it before it uses what the work computed. Null: nobody looks, and a kernel whose wait gives up traps.
  WaitRecord* wait_record() const { return wait_record_; }
  void set_wait_record(WaitRecord* record) { wait_record_ = record; }

 private:
  friend class Event;

  struct Refusing {};
  Stream(Refusing, Device device);
  CpuQueue& queue() const;  // throws as native() does
  void push(Task task, AfterError after_error);

  Device device_;
  std::unique_ptr<CpuQueue> queue_;  // CPU
  void* native_ = nullptr;           // CUDA
  SpanSink* span_sink_ = nullptr;
  WaitRecord* wait_record_ = nullptr;
};

// A point in a stream's work. Recorded before it is waited on; recording again, on the same stream, moves it to the new
// point.
class Event {
 public:
  explicit Event(Device device = {});
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  ~Event();

  // Completes when all that `stream` holds now is done (also when a task failed: the stream reports the error). Throws
  // InvalidArgument when the event was recorded on another stream before.
  void record(Stream& stream);

  // Returns when the point recorded last is reached. Throws InvalidArgument when none was; Timeout.
  void synchronize(Deadline deadline = Deadline::after(kLongestWait)) const;

 private:
  friend class Stream;

  Device device_;
  std::shared_ptr<EventState> state_;  // CPU; shared with tasks that still have to complete it
  void* native_ = nullptr;             // CUDA
  const void* recorded_on_ = nullptr;  // queue or cudaStream_t of its recordings; null: never recorded
};

}  // namespace heddle

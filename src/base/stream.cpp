#include "base/stream.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "base/trace.h"
#include "base/tracer.h"

namespace heddle {

std::string name_of(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

// A ring of tasks and the thread that runs them.
struct CpuQueue {
  static constexpr std::size_t kCapacity = 1024;
  static constexpr std::uint64_t kNobodyWaits = ~std::uint64_t{0};

  struct Slot {
    Task task;
    AfterError after_error = AfterError::skip;
  };

  explicit CpuQueue(ThreadPool& thread_pool) : pool(thread_pool), worker([this] { run(); }) {}

  ~CpuQueue() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_available.notify_one();
    worker.join();
  }

  void push(Task task, AfterError after_error) {
    std::unique_lock lock(mutex);
    const Deadline deadline = Deadline::after(kLongestWait);
    while (pushed - done == kCapacity)  // again, if another host was faster
      if (!wait_until_done(lock, pushed - kCapacity + 1, deadline))
        throw_error<Timeout>("CPU stream: its queue of {} tasks stayed full for 10 minutes", kCapacity);
    ring[pushed % kCapacity] = {std::move(task), after_error};
    ++pushed;
    lock.unlock();
    work_available.notify_one();
  }

  void synchronize(Deadline deadline) {
    std::unique_lock lock(mutex);
    const std::uint64_t target = pushed;
    if (!wait_until_done(lock, target, deadline))
      throw_error<Timeout>("CPU stream: {} tasks were not done at the deadline", target - done);
    if (const std::exception_ptr first = std::exchange(error, nullptr)) std::rethrow_exception(first);
  }

  // False when the deadline passed before `target` tasks were done.
  bool wait_until_done(std::unique_lock<std::mutex>& lock, std::uint64_t target, Deadline deadline) {
    return progress.wait_until(lock, deadline.time(), [&] {
      if (done >= target) return true;
      awaited = std::min(awaited, target);
      return false;
    });
  }

  void run() {
    track_of_this_thread() = track;
    std::unique_lock lock(mutex);
    while (true) {
      work_available.wait(lock, [&] { return done < pushed || stop; });
      if (done == pushed) return;  // stopped, and nothing is left
      // The slot is free to its producer only once `done` has moved on, so the task runs in place.
      Slot& slot = ring[done % kCapacity];
      if (error == nullptr || slot.after_error == AfterError::run) {
        lock.unlock();
        std::exception_ptr thrown;
        const std::int64_t begin = track == nullptr ? 0 : trace_clock();
        try {
          slot.task(pool);
        } catch (...) {
          thrown = std::current_exception();
        }
        if (track != nullptr) track->add_task(begin, trace_clock());
        lock.lock();
        if (thrown && !error) error = thrown;
      }
      slot.task = Task();  // what it holds is gone before it counts as done
      ++done;
      if (done < awaited) continue;
      awaited = kNobodyWaits;
      progress.notify_all();
    }
  }

  ThreadPool& pool;
  std::mutex mutex;
  std::condition_variable work_available;  // for the worker
  std::condition_variable progress;        // for hosts, when `awaited` tasks are done: not after each of them
  std::array<Slot, kCapacity> ring;
  std::uint64_t pushed = 0;
  std::uint64_t done = 0;
  std::uint64_t awaited = kNobodyWaits;  // the smallest number of done tasks that somebody waits for
  std::exception_ptr error;              // the first since synchronize() last looked
  bool stop = false;
  TraceTrack* track = Tracer::active() == nullptr ? nullptr : &Tracer::active()->new_track();
  std::thread worker;  // last: it starts when all else is there
};

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t completed = 0;

  void wait_for(std::uint64_t target, Deadline deadline) {
    std::unique_lock lock(mutex);
    if (!changed.wait_until(lock, deadline.time(), [&] { return completed >= target; }))
      throw_error<Timeout>("event: recording {} was not reached at the deadline; the last reached is {}", target,
                           completed);
  }
  std::uint64_t record() {
    const std::lock_guard lock(mutex);
    return ++recorded;
  }
  void complete(std::uint64_t target) {
    {
      const std::lock_guard lock(mutex);
      completed = target;  // recordings of one stream complete in order
    }
    changed.notify_all();
  }
  std::uint64_t last_recorded() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
};

namespace {

// The sink of a recorded stream that has no other: a Span then marks its work, and the mark itself records it.
class MarksOnly final : public SpanSink {
  void begin(std::string_view, int, Clock::time_point) override {}
  void end(std::string_view, int, Clock::time_point) override {}
};

}  // namespace

Stream::Stream(ThreadPool& pool) : queue_(std::make_unique<CpuQueue>(pool)) {
  static MarksOnly marks;
  if (queue_->track != nullptr) span_sink_ = &marks;
}

Stream::Stream(Device device, [[maybe_unused]] StreamPriority priority) : device_(device) {
  require(device.kind == DeviceKind::cuda, "a CPU stream is made from a thread pool");
  if constexpr (kHaveCuda)
    native_ = cuda::create_stream(device.index, priority);
  else
    throw_error<InvalidArgument>("a stream on {}: this build has no CUDA side", name_of(device));
}

Stream::Stream(Refusing, Device device) : device_(device) {}

Stream Stream::refusing(Device device) {
  return {Refusing(), device};
}

Stream::Stream(Stream&& other) noexcept
    : device_(other.device_),
      queue_(std::move(other.queue_)),
      native_(std::exchange(other.native_, nullptr)),
      span_sink_(other.span_sink_),
      wait_record_(other.wait_record_) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(queue_, other.queue_);
  std::swap(native_, other.native_);
  std::swap(span_sink_, other.span_sink_);
  std::swap(wait_record_, other.wait_record_);
  return *this;
}

Stream::~Stream() {
  if constexpr (kHaveCuda)
    if (native_ != nullptr) cuda::destroy_stream(device_.index, native_);
}

void* Stream::native() const {
  require(native_ != nullptr, "a stream on {} that takes no work of a GPU: is this a dry run?", name_of(device_));
  return native_;
}

CpuQueue& Stream::queue() const {
  require(queue_ != nullptr, "a stream on {} that takes no work of the CPU: is this a dry run?", name_of(device_));
  return *queue_;
}

void Stream::push(Task task, AfterError after_error) {
  queue().push(std::move(task), after_error);
}

void Stream::wait(const Event& event) {
  require(event.device_ == device_, "a stream on {} cannot wait for an event of {}", name_of(device_),
          name_of(event.device_));
  require(event.recorded_on_ != nullptr, "event: waited on before it was recorded");
  if (device_.kind == DeviceKind::cpu) {
    // Also after an error, so that an event recorded behind this wait does not complete before it.
    queue().push(Task([state = event.state_, target = event.state_->last_recorded()](ThreadPool&) {
                   const std::int64_t begin = trace_clock();
                   state->wait_for(target, Deadline::after(kLongestWait));
                   if (TraceTrack* const track = track_of_this_thread())
                     track->add(TraceKind::event, "event", -1, begin, trace_clock());
                 }),
                 AfterError::run);
  } else if constexpr (kHaveCuda) {
    cuda::stream_wait_event(native(), event.native_);
  }
}

void Stream::synchronize(Deadline deadline) {
  if (device_.kind == DeviceKind::cpu) return queue().synchronize(deadline);
  void* const stream = native();
  if constexpr (kHaveCuda) cuda::synchronize_stream(stream, deadline);
}

Event::Event(Device device) : device_(device) {
  if (device.kind == DeviceKind::cpu)
    state_ = std::make_shared<EventState>();
  else if constexpr (kHaveCuda)
    native_ = cuda::create_event(device.index);
  else
    throw_error<InvalidArgument>("an event on {}: this build has no CUDA side", name_of(device));
}

Event::Event(Event&& other) noexcept
    : device_(other.device_),
      state_(std::move(other.state_)),
      native_(std::exchange(other.native_, nullptr)),
      recorded_on_(other.recorded_on_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(state_, other.state_);
  std::swap(native_, other.native_);
  std::swap(recorded_on_, other.recorded_on_);
  return *this;
}

Event::~Event() {
  if constexpr (kHaveCuda)
    if (native_ != nullptr) cuda::destroy_event(native_);
}

void Event::record(Stream& stream) {
  require(stream.device_ == device_, "an event of {} cannot be recorded on {}", name_of(device_),
          name_of(stream.device_));
  const void* recorded_on = device_.kind == DeviceKind::cpu ? stream.queue_.get() : stream.native_;
  require(recorded_on_ == nullptr || recorded_on_ == recorded_on,
          "an event belongs to the stream that recorded it first");
  recorded_on_ = recorded_on;
  if (device_.kind == DeviceKind::cpu)
    stream.queue().push(Task([state = state_, target = state_->record()](ThreadPool&) { state->complete(target); }),
                        AfterError::run);
  else if constexpr (kHaveCuda)
    cuda::record_event(native_, stream.native());
}

void Event::synchronize(Deadline deadline) const {
  require(recorded_on_ != nullptr, "event: waited on before it was recorded");
  if (device_.kind == DeviceKind::cpu)
    state_->wait_for(state_->last_recorded(), deadline);
  else if constexpr (kHaveCuda)
    cuda::synchronize_event(native_, deadline);
}

}  // namespace heddle

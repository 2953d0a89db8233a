#include "fabric/mapped_memory.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/sanitizer.h"
#include "device/atomics.h"

#if HEDDLE_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace heddle {
namespace {

using Word = std::uint64_t;

bool is_word(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % sizeof(Word) == 0;
}

Word load_word(const void* place) {
  if (is_word(place)) return atomic_load<Order::relaxed>(static_cast<const Word*>(place));
  Word word;
  std::memcpy(&word, place, sizeof word);
  return word;
}

#if HEDDLE_THREAD_SANITIZER
// ThreadSanitizer does not know fences. To C++, a relaxed store behind a fence is a release of what came before that
// fence, and of nothing after it. So a fiber of the thread, which knows of the thread what it had done at its last
// fence, makes that release; the store itself is the thread's.
class AtLastFence {
 public:
  AtLastFence() = default;
  AtLastFence(const AtLastFence&) = delete;
  AtLastFence& operator=(const AtLastFence&) = delete;
  ~AtLastFence() {
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
  }

  void fence() {
    if (fiber_ == nullptr) fiber_ = __tsan_create_fiber(0);
    void* const thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);  // which thereby knows what the thread has done
    __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
  }

  void release_at(Word* place) {
    if (fiber_ == nullptr) return;
    void* const thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, __tsan_switch_to_fiber_no_sync);
    __tsan_release(place);
    __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
  }

 private:
  void* fiber_ = nullptr;
};
thread_local AtLastFence at_last_fence;

void store_atomically(Word* place, Word word) {
  at_last_fence.release_at(place);
  atomic_store<Order::relaxed>(place, word);
}
#else
void store_atomically(Word* place, Word word) {
  atomic_store<Order::relaxed>(place, word);
}
#endif

void store_word(void* place, Word word) {
  if (is_word(place))
    store_atomically(static_cast<Word*>(place), word);
  else
    std::memcpy(place, &word, sizeof word);
}

}  // namespace

void copy_mapped(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0 || destination == source) return;
  if (bytes == sizeof(Word) && (is_word(destination) || is_word(source)))
    store_word(destination, load_word(source));
  else
    std::memmove(destination, source, bytes);
}

void fence_mapped() {
#if HEDDLE_THREAD_SANITIZER
  at_last_fence.fence();
  Word here = 0;  // a full barrier of the processors that ThreadSanitizer runs on
  atomic_exchange<Order::seq_cst>(&here, 1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace heddle

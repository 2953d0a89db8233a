#include "fabric/mapped_memory.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "device/atomics.h"

#if defined(__SANITIZE_THREAD__)
#define HEDDLE_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HEDDLE_UNDER_TSAN 1
#endif
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

#ifdef HEDDLE_UNDER_TSAN
// ThreadSanitizer does not know fences. The C++ standard lets one that is followed by a relaxed store be what a release
// store is; here the stores behind a fence are that, and without a fence they are not.
thread_local bool thread_has_fenced = false;

void store_atomically(Word* place, Word word) {
  if (thread_has_fenced)
    atomic_store<Order::release>(place, word);
  else
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
#ifdef HEDDLE_UNDER_TSAN
  thread_has_fenced = true;
  Word here = 0;  // a full barrier of the processors that ThreadSanitizer runs on
  atomic_exchange<Order::seq_cst>(&here, 1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace heddle

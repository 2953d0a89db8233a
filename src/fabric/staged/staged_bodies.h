// What a staged fabric has the device do, by bodies of one thread: one source for a CPU thread and a GPU. All enqueue.
#pragma once

#include <cstdint>

#include "base/stream.h"
#include "device/semaphore.h"
#include "device/spin.h"

namespace heddle::staged {

// Releases at system scope of what the stream did before.
void enqueue_set(Stream& stream, std::uint64_t* flag, std::uint64_t value);
void enqueue_add(Stream& stream, std::uint64_t* flag, std::uint64_t value);
// Copies a word by one load and one store, both atomic; orders nothing.
void enqueue_copy_word(Stream& stream, std::uint64_t* to, const std::uint64_t* from);
// Acquires; give up at the limit, and leave a record.
void enqueue_wait(Stream& stream, const WaitLimit& limit, const WaitReason& reason, const std::uint64_t* flag,
                  std::uint64_t target);
void enqueue_wait_next(Stream& stream, const WaitLimit& limit, const WaitReason& reason, Semaphore* semaphore);
// Whether what it is given now is recorded in a graph.
bool is_captured(const Stream& stream);

}  // namespace heddle::staged

// A deadline for calls that have none, such as NCCL's.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"

namespace heddle {

// Runs `call` on a thread of its own and rethrows what it throws. Throws Timeout when it has not returned in time; the
// thread is then left behind, so `call` must own all that it uses.
template <class Call>
void within_deadline(std::chrono::nanoseconds limit, std::string_view what, Call call) {
  auto task = std::make_shared<std::packaged_task<void()>>(std::move(call));
  std::future<void> done = task->get_future();
  std::thread thread([task] { (*task)(); });
  if (done.wait_for(limit) != std::future_status::ready) {
    thread.detach();
    throw_error<Timeout>("{} has not returned after {:.1f} s", what, std::chrono::duration<double>(limit).count());
  }
  thread.join();
  done.get();
}

}  // namespace heddle

// How the host checks the records of a step's waits before it uses the step's results.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/atomics.h"
#include "device/wait_record.h"

namespace heddle {

// "rank 0 waited for rank 2 past the deadline of 10.0 s: all-reduce: expected 7, observed 6"; for a wait inside a
// kernel (rank -1), the kernel and the block that waited. `more`, if not empty, follows after "; ": for example the
// state of the rank that did not come.
inline std::string what_gave_up(const WaitRecord& record, std::uint64_t limit_nanoseconds, std::string_view more = {}) {
  if (atomic_load(&record.state) != WaitRecord::complete)
    return "a wait passed its deadline";  // its report is not complete
  const double seconds = static_cast<double>(limit_nanoseconds) * 1e-9;
  if (record.rank < 0)
    return fmt::format("kernel {}: block {} waited past the deadline of {:.1f} s: expected {}, observed {}",
                       record.tag.view(), record.from, seconds, record.expected, record.observed);
  return fmt::format("rank {} waited for rank {} past the deadline of {:.1f} s: {}: expected {}, observed {}{}{}",
                     record.rank, record.from, seconds, record.tag.view(), record.expected, record.observed,
                     more.empty() ? "" : "; ", more);
}

class WaitWatch {
 public:
  // Adds a record, which must outlive the watch.
  void add(const WaitLimit& waits) {
    require(waits.record != nullptr, "watch: waits without a record");
    waits_.push_back(waits);
  }

  // Whether a wait has given up. Sees all waits of kernels and tasks that have ended.
  bool any_gave_up() const {
    return std::ranges::any_of(waits_, [](const WaitLimit& waits) { return gave_up(waits); });
  }

  // The text of the first record that is filled, else empty. To be called when the work has ended, since a record that
  // is being written cannot be read.
  std::string what_gave_up() const {
    const auto first = std::ranges::find_if(waits_, gave_up);
    return first == waits_.end() ? "" : heddle::what_gave_up(*first->record, first->nanoseconds);
  }

 private:
  static bool gave_up(const WaitLimit& waits) { return atomic_load(&waits.record->state) != WaitRecord::empty; }

  std::vector<WaitLimit> waits_;
};

}  // namespace heddle

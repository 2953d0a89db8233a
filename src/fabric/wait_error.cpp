#include "fabric/wait_error.h"

#include "base/error.h"

namespace heddle {

std::string describe(const WaitRecord& record, std::uint64_t limit_nanoseconds, std::string_view more) {
  return fmt::format("rank {} waited for rank {} past the deadline of {:.1f} s: {}: expected {}, observed {}{}{}",
                     record.rank, record.from, static_cast<double>(limit_nanoseconds) * 1e-9, record.tag.view(),
                     record.expected, record.observed, more.empty() ? "" : "; ", more);
}

}  // namespace heddle

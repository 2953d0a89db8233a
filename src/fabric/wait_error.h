// From the record that a wait left behind to an exception.
#pragma once

#include <string>
#include <string_view>

#include "device/wait_record.h"

namespace heddle {

// "rank 0 waited for rank 2 past the deadline of 10.0 s: all-reduce: expected 7, observed 6"; `more` follows after "; "
// where there is any, such as what is known of the rank that did not come.
std::string describe(const WaitRecord& record, std::uint64_t limit_nanoseconds, std::string_view more = {});

}  // namespace heddle

// The version of NCCL that was found. NCCL promises no binary compatibility between releases for its symmetric windows
// and device communicators, so it must be exactly the version whose headers this was built with.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Of NCCL's version code: 22809 is "2.28.9".
std::string nccl_version_text(int code);

// Empty where they agree, else "built with NCCL 2.28.9, found 2.28.3 at PATH: put ... first in LD_LIBRARY_PATH".
std::string nccl_mismatch(int built_with, int found, std::string_view path);

}  // namespace heddle

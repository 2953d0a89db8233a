#include "fabric/nvlink/nccl_version.h"

#include <fmt/format.h>

namespace heddle {

std::string nccl_version_text(int code) {
  // Since 2.9 the code has two more digits for the major version.
  const int major = code >= 10000 ? code / 10000 : code / 1000;
  const int rest = code >= 10000 ? code % 10000 : code % 1000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

std::string nccl_mismatch(int built_with, int found, std::string_view path) {
  if (built_with == found) return {};
  const std::string built = nccl_version_text(built_with);
  return fmt::format("built with NCCL {}, found {} at {}: put the folder of {}'s libnccl.so.2 first in LD_LIBRARY_PATH",
                     built, nccl_version_text(found), path, built);
}

}  // namespace heddle

// What every rank says of itself in a few words, for every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/stream.h"
#include "fabric/fabric.h"

namespace heddle {

// Collective: every rank's words, in the order of ranks; all ranks give as many. Takes as many 64-bit places in the heap, and
// is done when it returns. Throws as synchronize() does.
std::vector<std::uint64_t> gather_words(Fabric& fabric, Stream& stream, std::span<const std::uint64_t> mine);

}  // namespace heddle

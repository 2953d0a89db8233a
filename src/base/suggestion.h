// "Did you mean ...?" for a word that was misspelt.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace heddle {

// The candidate nearest to `word`, by the optimal string alignment distance (insert, delete, replace or swap of two
// neighbours; Damerau, 1964), or of which `word` is the beginning. Empty if none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace heddle

#include "base/suggestion.h"

#include <algorithm>
#include <vector>

namespace heddle {
namespace {

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      std::size_t& least = table[i][j];
      if (i == 0 || j == 0) {
        least = i + j;
        continue;
      }
      least = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least = std::min(least, table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 64;  // a word beyond is no misspelling
  constexpr std::size_t kShortest = 3;  // of a beginning; "--" does not count
  if (word.size() > kLongest) return {};
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  std::string best;
  std::size_t least = std::max<std::size_t>(1, letters / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t errors = candidate.starts_with(word) && letters >= kShortest ? 1 : distance(word, candidate);
    if (errors >= least || errors >= letters) continue;
    least = errors;
    best = candidate;
  }
  return best;
}

}  // namespace heddle

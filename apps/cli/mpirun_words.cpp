#include "cli/mpirun_words.h"

#include <algorithm>
#include <array>
#include <utility>

namespace heddle {
namespace {

// A banner of mpirun is enclosed by lines of dashes.
bool is_rule(std::string_view line) {
  constexpr std::size_t kShortest = 70;
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return line.size() >= kShortest && line.find_first_not_of('-') == std::string_view::npos;
}

bool is_about_an_end(std::string_view block) {
  // "mpirun detected", and "prterun detected" since Open MPI 5.
  constexpr std::array<std::string_view, 6> kPhrases{
      "terminated normally, but",           "run detected that one or more processes exited",
      "run noticed that process rank",      "run noticed that the job aborted",
      "run has exited due to process rank", "MPI_ABORT was invoked on rank"};
  return std::ranges::any_of(kPhrases, [&](std::string_view phrase) { return block.find(phrase) != block.npos; });
}

bool is_chatter(std::string_view line) {
  return line.starts_with("mpirun: Forwarding signal") || line.find("has sent help message") != line.npos ||
         line.find("have sent help message") != line.npos || line.find("orte_base_help_aggregate") != line.npos;
}

// "rank 2: no such folder" -> "no such folder".
std::string_view without_rank(std::string_view error) {
  constexpr std::string_view kRank = "rank ";
  if (!error.starts_with(kRank)) return error;
  const std::size_t end = error.find_first_not_of("0123456789", kRank.size());
  if (end == error.npos || end == kRank.size() || !error.substr(end).starts_with(": ")) return error;
  return error.substr(end + 2);
}

}  // namespace

std::string MpirunWords::add(std::string_view bytes) {
  std::string shown;
  for (std::size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    line_ += bytes.substr(0, end + 1);
    bytes.remove_prefix(end + 1);
    shown += take_line(std::exchange(line_, {}));
  }
  line_ += bytes;
  return shown;
}

std::string MpirunWords::take_line(std::string line) {
  if (line == kRankFailed) {
    rank_failed_ = true;
    return {};
  }
  if (block_.empty()) {
    if (!is_rule(line)) return pass(std::move(line));
    block_ = std::move(line);
    return {};
  }
  if (line.starts_with("heddle: ")) return pass(std::move(line));
  block_ += line;
  if (!is_rule(line)) return {};
  std::string block = std::exchange(block_, {});
  if (!is_about_an_end(block)) return block;
  banners_ += block;
  return {};
}

std::string MpirunWords::pass(std::string line) {
  constexpr std::string_view kError = "heddle: error: ";
  // As it ends, mpirun of Open MPI 5 writes what is left of a rank's standard output into its standard error.
  if (const std::size_t ours = line.find("heddle: "); ends_expected_ && ours != line.npos) line.erase(0, ours);
  if (is_chatter(line) || (kills_expected_ && !line.starts_with("heddle: "))) return {};
  ranks_spoke_ = ranks_spoke_ || line.starts_with("heddle: ");
  said_interrupted_ = said_interrupted_ || line.starts_with("heddle: interrupted");
  if (ends_expected_ && line.starts_with(kError) && line.ends_with(") has ended\n")) return {};
  const bool repeated =
      line.starts_with(kError) && !errors_.emplace(without_rank(std::string_view(line).substr(kError.size()))).second;
  return repeated ? std::string() : line;
}

std::string MpirunWords::flush() {
  if (is_about_an_end(block_)) return {};  // the rest of it will come
  if (kills_expected_) return {};
  std::string shown = std::exchange(block_, {});
  return shown + std::exchange(line_, {});
}

std::string MpirunWords::end() {
  std::string shown;
  if (is_about_an_end(block_)) banners_ += std::exchange(block_, {});
  shown = std::exchange(block_, {});
  if (!line_.empty()) shown += pass(std::exchange(line_, {}));
  if (!ranks_spoke_) shown += std::exchange(banners_, {});
  return shown;
}

}  // namespace heddle

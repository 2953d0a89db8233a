#include "fabric/liveness.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::size_t kMostCharacters = 300;

void add(std::string& text, const std::string& more) {
  if (more.empty() || text.size() > kMostCharacters) return;
  text += (text.empty() ? "" : "; ") + more;
}

// A process of another machine is not named: its number says nothing here.
std::string name_of(int rank, const RankStatus& status, ProcessState state) {
  return name_of_rank(rank, state == ProcessState::unknown ? 0 : status.process.process);
}

// Of a process that is gone, or of a rank that has been silent for too long.
std::string why_lost(int rank, const RankStatus& status, ProcessState state) {
  const std::string name = name_of(rank, status, state);
  if (state == ProcessState::gone) return name + " has ended";
  return fmt::format("{} has not moved for {:.1f} s{}", name, std::chrono::duration<double>(status.silence).count(),
                     state == ProcessState::stopped   ? ": it is stopped"
                     : state == ProcessState::unknown ? ": it has ended, hangs or cannot be reached"
                                                      : "");
}

bool may_end(const RankStatus& status) {
  return status.stage == RankStatus::absent || status.stage == RankStatus::left;
}

// What `rank`, which others wait for, does itself.
std::string what_it_does(int rank, const RankStatus& status, int first_rank) {
  const std::string name = name_of(first_rank + rank, status, state_of(status.process));
  if (status.stage == RankStatus::absent) return name + " has not started";
  if (status.stage != RankStatus::joined) return name + " has closed its fabric";
  if (status.waits_for < 0) return name + " is late: it does not wait for anybody";
  const std::string_view tag = status.tag.view();
  return fmt::format("{} waits for rank {}{}", name, first_rank + status.waits_for,
                     tag.empty() ? "" : fmt::format(" ({})", tag));
}

std::string chain_of_waits(int rank, int from, std::span<const RankStatus> ranks, int first_rank) {
  std::string text;
  std::vector<bool> passed(ranks.size(), false);
  for (int next = from; next >= 0 && next < static_cast<int>(ranks.size());) {
    const auto i = static_cast<std::size_t>(next);
    if (next == rank || passed[i]) {
      if (!text.empty()) add(text, "they wait for each other");
      break;
    }
    passed[i] = true;
    add(text, what_it_does(next, ranks[i], first_rank));
    next = ranks[i].stage == RankStatus::joined ? ranks[i].waits_for : -1;
  }
  return text;
}

}  // namespace

Loss loss_of(int rank, const RankStatus& status, const LivenessLimits& limits) {
  if (may_end(status) || status.silence < 2 * limits.beat) return {};
  const ProcessState state = state_of(status.process);
  if (state == ProcessState::gone) return {Loss::ended, why_lost(rank, status, state)};
  if (status.silence > limits.deadline) return {Loss::silent, why_lost(rank, status, state)};
  return {};
}

std::string who_is_late(int rank, int from, std::span<const RankStatus> ranks, const LivenessLimits& limits,
                        int first_rank) {
  std::string text;
  for (int peer = 0; peer < static_cast<int>(ranks.size()); ++peer) {
    const RankStatus& status = ranks[static_cast<std::size_t>(peer)];
    if (peer == rank || may_end(status)) continue;
    const ProcessState state = state_of(status.process);
    if (state == ProcessState::gone || status.silence > limits.deadline / 4)
      add(text, why_lost(first_rank + peer, status, state));
  }
  return text.empty() ? chain_of_waits(rank, from, ranks, first_rank) : text;
}

std::string silent_machines(int rank, std::span<const MachineRanks> machines, std::span<const RankStatus> ranks,
                            const LivenessLimits& limits) {
  const auto is_silent = [&](int peer) {
    const RankStatus& status = ranks[static_cast<std::size_t>(peer)];
    if (peer == rank || may_end(status) || status.silence <= limits.deadline / 4) return false;
    const ProcessState state = state_of(status.process);
    return state == ProcessState::running || state == ProcessState::unknown;
  };
  std::string text;
  for (const MachineRanks& machine : machines)
    if (std::ranges::all_of(machine.ranks, is_silent))
      add(text,
          fmt::format("machine {} is silent: {}", machine.name, ranks_that(machine.ranks, "is on it", "are on it")));
  return text;
}

std::string name_of_rank(int rank, std::int32_t process) {
  return process == 0 ? fmt::format("rank {}", rank) : fmt::format("rank {} (process {})", rank, process);
}

std::string ended_by_exception(int rank, std::int32_t process) {
  return name_of_rank(rank, process) + " has ended with an error of its own";
}

std::string ranks_that(std::span<const int> ranks, std::string_view what_one, std::string_view what) {
  constexpr std::size_t kMostNamed = 16;
  if (ranks.empty()) return {};
  if (ranks.size() == 1) return fmt::format("rank {} {}", ranks.front(), what_one);
  const bool more = ranks.size() > kMostNamed;
  return fmt::format("ranks {}{} {}", fmt::join(ranks.first(more ? kMostNamed : ranks.size()), ", "),
                     more ? ", ..." : "", what);
}

std::string not_started(std::span<const int> ranks) {
  return ranks_that(ranks, "has not started", "have not started");
}

}  // namespace heddle

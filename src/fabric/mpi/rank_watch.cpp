#include "fabric/mpi/rank_watch.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace heddle {
namespace {

constexpr int kBeatsPerDeadline = 20;
constexpr std::chrono::milliseconds kLongestInterval{200};
constexpr std::chrono::milliseconds kShortestInterval{5};

// How long after trouble was declared an MPI call may go on before the process is ended.
constexpr std::chrono::milliseconds kGrace{500};

double seconds(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) * 1e-9;
}

std::uint64_t count(std::chrono::nanoseconds duration) {
  return static_cast<std::uint64_t>(duration.count());
}

// Machines may have an address in common, as of a bridge that reaches nobody else; network namespaces are machines here.
bool share_machine(const RankContact& a, const RankContact& b) {
  return a.process.machine == b.process.machine && a.address.addresses == b.address.addresses;
}

bool has_address(const RankContact& of, std::uint32_t address) {
  return std::ranges::find(of.address.addresses, address) != of.address.addresses.end();
}

// An address that other machines of the run do not have.
std::string name_of_machine(const RankContact& of, const std::vector<RankContact>& all) {
  for (int i = 0; i < of.address.num_addresses; ++i) {
    const std::uint32_t address = of.address.addresses[static_cast<std::size_t>(i)];
    const auto is_shared = [&](const RankContact& other) {
      return !share_machine(of, other) && has_address(other, address);
    };
    if (std::ranges::any_of(all, is_shared)) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &address, text.data(), text.size());
    return text.data();
  }
  return "?";
}

std::vector<MachineRanks> machines_of(const std::vector<RankContact>& contacts) {
  std::vector<MachineRanks> machines;
  for (std::size_t rank = 0; rank < contacts.size(); ++rank) {
    auto found = std::ranges::find_if(machines, [&](const MachineRanks& machine) {
      return share_machine(contacts[rank], contacts[static_cast<std::size_t>(machine.ranks.front())]);
    });
    if (found == machines.end()) found = machines.insert(found, {name_of_machine(contacts[rank], contacts), {}});
    found->ranks.push_back(static_cast<int>(rank));
  }
  return machines;
}

}  // namespace

RankWatch::RankWatch(const WatchOptions& options)
    : options_(options),
      interval_(std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline / kBeatsPerDeadline),
                           kShortestInterval, kLongestInterval)),
      presence_(options.job, options.rank, options.world_size),
      thread_([this] { run(); }) {}

RankWatch::~RankWatch() {
  stop_ = true;
  socket_.wake();
  thread_.join();
}

RankContact RankWatch::own_contact() const {
  return {.address = socket_.address(), .process = process_};
}

void RankWatch::begin(std::vector<RankContact> contacts) {
  const std::lock_guard lock(mutex_);
  contacts_ = std::move(contacts);
  seen_.assign(contacts_.size(), Seen{.heard_at = now()});
  if (options_.one_machine) return;
  machines_ = machines_of(contacts_);
  // Of processes of another machine nothing is known but what they say; so of those in another network namespace, too.
  const RankContact own = contacts_[static_cast<std::size_t>(options_.rank)];
  for (RankContact& contact : contacts_)
    if (!share_machine(contact, own)) contact.process.machine = 0;
}

void RankWatch::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

void RankWatch::say_waiting(int from, Tag tag) {
  const std::lock_guard lock(mutex_);
  waiting_for_ = from;
  waiting_tag_ = tag;
}

void RankWatch::say_not_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_for_ = -1;
}

void RankWatch::say_closed() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  tell();
}

std::vector<RankStatus> RankWatch::statuses() const {
  std::vector<RankStatus> ranks;
  for (std::size_t i = 0; i < contacts_.size(); ++i) {
    const Seen& seen = seen_[i];
    ranks.push_back({.stage = ended_        ? RankStatus::left
                              : seen.closed ? RankStatus::closing
                                            : RankStatus::joined,
                     .process = contacts_[i].process,
                     .silence = std::chrono::nanoseconds(static_cast<std::int64_t>(now() - seen.heard_at)),
                     .waits_for = seen.waiting_for,
                     .tag = seen.tag});
  }
  return ranks;
}

std::string RankWatch::what_is_known_of(int from) const {
  const std::lock_guard lock(mutex_);
  if (!contacts_.empty()) {
    const std::vector<RankStatus> ranks = statuses();
    return with_machines(who_is_late(options_.rank, from, ranks, limits()), ranks);
  }
  const std::string missing = presence_.who_is_missing(options_.one_machine);
  return missing.empty() ? "every rank of this machine has started" : missing;
}

std::string RankWatch::with_machines(std::string text, const std::vector<RankStatus>& ranks) const {
  const std::string silent = silent_machines(options_.rank, machines_, ranks, limits());
  if (!silent.empty()) text += (text.empty() ? "" : "; ") + silent;
  return text;
}

void RankWatch::declare(Beat::Kind kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (in_trouble_) return;
    trouble_kind_ = kind;
    trouble_ = printable(text, Beat{}.trouble.size() - 16);
    in_trouble_.store(true, std::memory_order_release);
  }
  // UDP may lose one, and this process may end as soon as this returns.
  for (int i = 0; i < 3; ++i) {
    if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    tell();
  }
}

void RankWatch::throw_trouble() const {
  const std::lock_guard lock(mutex_);
  if (trouble_kind_ == Beat::timeout) throw Timeout(trouble_);
  throw Failure(trouble_);
}

RankWatch::Call::Call(RankWatch& watch, const char* what, int peer) : watch_(watch) {
  watch_.call_peer_.store(peer, std::memory_order_relaxed);
  watch_.call_since_.store(watch.now(), std::memory_order_relaxed);
  watch_.call_.store(what, std::memory_order_release);
}

RankWatch::Call::~Call() {
  watch_.call_.store(nullptr, std::memory_order_release);
}

void RankWatch::run() {
  using Clock = std::chrono::steady_clock;
  auto before = Clock::now();
  auto told = before - interval_;
  while (!stop_) {
    socket_.wait(interval_);
    receive();
    const auto now = Clock::now();
    // More than this between two rounds: this process was stopped, and heard nobody.
    now_.fetch_add(count(std::min<std::chrono::nanoseconds>(now - before, 4 * interval_)));
    before = now;
    if (now - told < interval_) continue;
    told = now;
    look_at_ranks();
    look_at_call();
    tell();
  }
}

void RankWatch::receive() {
  while (const auto beat = socket_.receive()) {
    if (beat->job != options_.job || beat->rank < 0 || beat->rank >= options_.world_size) continue;
    const std::lock_guard lock(mutex_);
    if (seen_.empty()) continue;
    const bool waits = beat->waiting_for >= 0 && beat->waiting_for < options_.world_size;
    seen_[static_cast<std::size_t>(beat->rank)] = {.heard_at = now(),
                                                   .waiting_for = waits ? beat->waiting_for : -1,
                                                   .tag = beat->tag,
                                                   .closed = beat->closed != 0};
    if (beat->kind == Beat::alive || in_trouble_ || ended_) continue;
    trouble_kind_ = beat->kind;
    trouble_ = printable(beat->trouble.data(), beat->trouble.size());
    in_trouble_.store(true, std::memory_order_release);
  }
}

void RankWatch::look_at_ranks() {
  Loss loss;
  {
    const std::lock_guard lock(mutex_);
    if (in_trouble_) return;
    const std::vector<RankStatus> ranks = statuses();
    for (int rank = 0; rank < static_cast<int>(ranks.size()) && loss.kind == Loss::none; ++rank)
      if (rank != options_.rank) loss = loss_of(rank, ranks[static_cast<std::size_t>(rank)], limits());
    if (loss.kind == Loss::silent) loss.text = with_machines(loss.text, ranks);
  }
  if (loss.kind != Loss::none) declare(loss.kind == Loss::ended ? Beat::failure : Beat::timeout, loss.text);
}

void RankWatch::look_at_call() {
  const char* what = call_.load(std::memory_order_acquire);
  if (what == nullptr) return;
  const std::uint64_t since = call_since_.load(std::memory_order_relaxed);
  const std::uint64_t lasted = now() - std::min(now(), since);
  const int peer = call_peer_.load(std::memory_order_relaxed);
  const bool late = lasted > count(limit());
  if (!late && (!in_trouble() || lasted <= count(kGrace))) return;
  if (call_.load(std::memory_order_acquire) != what || call_since_.load(std::memory_order_relaxed) != since) return;
  const std::string known = what_is_known_of(peer);
  declare(Beat::timeout, fmt::format("rank {} is in {}{} since {:.1f} s, longer than the deadline{}{}", options_.rank,
                                     what, peer < 0 ? "" : fmt::format(" (rank {})", peer), seconds(lasted),
                                     known.empty() ? "" : "; ", known));
  std::string line;
  {
    const std::lock_guard lock(mutex_);
    line = fmt::format("heddle: error: rank {} gives up: {}\n", options_.rank, trouble_);
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  // Who looks for those who have not come must still find this rank.
  std::this_thread::sleep_for(kGrace);
  ::_exit(1);
}

Beat RankWatch::own_beat() const {
  const std::lock_guard lock(mutex_);
  Beat beat{.kind = trouble_kind_,
            .job = options_.job,
            .rank = options_.rank,
            .waiting_for = waiting_for_,
            .tag = waiting_tag_,
            .closed = closed_ ? std::uint64_t{1} : 0};
  const char* call = call_.load(std::memory_order_acquire);
  if (call != nullptr && beat.waiting_for < 0) {
    // Most calls are over at once; one that waits says so from the next beat on.
    beat.waiting_for = call_peer_.load(std::memory_order_relaxed);
    std::strncpy(beat.tag.text, call, Tag::kLongest);
  }
  std::copy_n(trouble_.begin(), std::min(trouble_.size(), beat.trouble.size() - 1), beat.trouble.begin());
  return beat;
}

void RankWatch::tell() const {
  const Beat beat = own_beat();
  std::vector<RankContact> contacts;
  {
    const std::lock_guard lock(mutex_);
    contacts = contacts_;
  }
  for (int rank = 0; rank < static_cast<int>(contacts.size()); ++rank)
    if (rank != options_.rank) socket_.send(contacts[static_cast<std::size_t>(rank)].address, beat);
}

}  // namespace heddle

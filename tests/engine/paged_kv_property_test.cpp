// Any sequence of growth, forks, truncations and releases, compared with a cache in plain vectors: the contents of each
// page, and which sequence may write into it.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <vector>

#include "engine/page_allocator.h"

namespace heddle {
namespace {

struct Action {
  enum Kind { grow, fork, truncate, release } kind;
  unsigned which;   // sequence, modulo how many there are
  unsigned amount;  // tokens to grow by, or modulo the length + 1 what is left
};

void showValue(const Action& action, std::ostream& out) {
  out << "{kind " << action.kind << ", which " << action.which << ", amount " << action.amount << "}";
}

struct Entry {
  PageTable table;
  std::vector<int> contents;  // by position
};

class World {
 public:
  World(int num_pages, int page_size)
      : page_size_(page_size),
        pages_(num_pages),
        memory_(static_cast<std::size_t>(num_pages), std::vector<int>(static_cast<std::size_t>(page_size), -1)) {
    entries_.push_back({PageTable(pages_, page_size), {}});
  }

  void apply(const Action& action) {
    if (entries_.empty()) entries_.push_back({PageTable(pages_, page_size_), {}});
    Entry& entry = entries_[action.which % entries_.size()];
    switch (action.kind) {
      case Action::grow:
        return grow(entry, static_cast<int>(action.amount % 7));
      case Action::fork: {
        Entry copy{entry.table.fork(), entry.contents};
        entries_.push_back(std::move(copy));
        return;
      }
      case Action::truncate: {
        const std::size_t length = action.amount % (entry.contents.size() + 1);
        entry.table.truncate(static_cast<int>(length));
        entry.contents.resize(length);
        return;
      }
      case Action::release:
        std::swap(entry, entries_.back());
        entries_.pop_back();
        return;
    }
  }

  // Every sequence reads what it wrote; the reference count of every page is the number of its holders; a page is
  // either free or held.
  void check() const {
    std::map<int, int> holders;
    for (const Entry& entry : entries_) {
      RC_ASSERT(entry.table.length() == static_cast<int>(entry.contents.size()));
      for (std::size_t i = 0; i < entry.contents.size(); ++i) RC_ASSERT(slot(entry, i) == entry.contents[i]);
      std::vector<int> own(entry.table.pages().begin(), entry.table.pages().end());
      for (const int page : own) ++holders[page];
      std::ranges::sort(own);
      RC_ASSERT(std::ranges::adjacent_find(own) == own.end());
    }
    for (int page = 0; page < pages_.num_pages(); ++page) RC_ASSERT(pages_.references(page) == holders[page]);
    RC_ASSERT(pages_.num_free() == pages_.num_pages() - static_cast<int>(std::ranges::count_if(
                                                            holders, [](auto& held) { return held.second > 0; })));
  }

  void release_all() { entries_.clear(); }
  int num_free() const { return pages_.num_free(); }

 private:
  int slot(const Entry& entry, std::size_t position) const {
    const auto page_size = static_cast<std::size_t>(page_size_);
    return memory_[static_cast<std::size_t>(entry.table.pages()[position / page_size])][position % page_size];
  }

  void grow(Entry& entry, int more) {
    const int length = entry.table.length() + more;
    const int needed = entry.table.pages_needed(length);
    const int free_before = pages_.num_free();
    std::vector<PageCopy> copies;
    const bool grown = entry.table.grow(length, copies);
    RC_ASSERT(grown == (needed <= free_before));
    if (!grown) {
      RC_ASSERT(copies.empty());
      return;
    }
    RC_ASSERT(free_before - pages_.num_free() == needed);
    for (const PageCopy& copy : copies)
      memory_[static_cast<std::size_t>(copy.to)] = memory_[static_cast<std::size_t>(copy.from)];
    for (int position = static_cast<int>(entry.contents.size()); position < length; ++position) {
      const int page = entry.table.pages()[static_cast<std::size_t>(position / page_size_)];
      RC_ASSERT(pages_.references(page) == 1);  // written by one sequence alone
      memory_[static_cast<std::size_t>(page)][static_cast<std::size_t>(position % page_size_)] = next_value_;
      entry.contents.push_back(next_value_++);
    }
  }

  int page_size_;
  PageAllocator pages_;
  std::vector<std::vector<int>> memory_;
  std::vector<Entry> entries_;
  int next_value_ = 0;
};

TEST(PagedKv, AnyCourseLosesNoPageSharesNoneWronglyAndCopiesRight) {
  const auto action = rc::gen::apply(
      [](int kind, unsigned which, unsigned amount) {
        return Action{static_cast<Action::Kind>(kind), which, amount};
      },
      rc::gen::weightedElement<int>(
          {{5, Action::grow}, {2, Action::fork}, {2, Action::truncate}, {1, Action::release}}),
      rc::gen::arbitrary<unsigned>(), rc::gen::arbitrary<unsigned>());
  EXPECT_TRUE(rc::check([&] {
    const int num_pages = *rc::gen::inRange(1, 30);
    const int page_size = *rc::gen::inRange(1, 6);
    const auto actions = *rc::gen::container<std::vector<Action>>(action);
    World world(num_pages, page_size);
    for (const Action& each : actions) {
      world.apply(each);
      world.check();
    }
    world.release_all();
    RC_ASSERT(world.num_free() == num_pages);
  }));
}

}  // namespace
}  // namespace heddle

#include "engine/page_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

TEST(PageAllocator, GivesEachPageOnceAndTakesItBackAtZero) {
  PageAllocator pages(2);
  const int first = *pages.allocate();
  const int second = *pages.allocate();
  EXPECT_NE(first, second);
  EXPECT_FALSE(pages.allocate());
  pages.retain(first);
  pages.release(first);
  EXPECT_EQ(pages.num_free(), 0);
  pages.release(first);
  EXPECT_EQ(pages.num_free(), 1);
  EXPECT_EQ(*pages.allocate(), first);
}

TEST(PageAllocator, RefusesPagesThatNobodyHolds) {
  PageAllocator pages(2);
  EXPECT_THROW(pages.release(0), InvalidArgument);
  EXPECT_THROW(pages.retain(1), InvalidArgument);
  EXPECT_THROW(PageAllocator(0), InvalidArgument);
}

TEST(PageTable, GrowsByWholePagesAndGivesThemBack) {
  PageAllocator pages(4);
  std::vector<PageCopy> copies;
  {
    PageTable table(pages, 4);
    EXPECT_TRUE(table.grow(1, copies));
    EXPECT_TRUE(table.grow(4, copies));
    EXPECT_EQ(pages.num_free(), 3);
    EXPECT_TRUE(table.grow(5, copies));
    EXPECT_EQ(pages.num_free(), 2);
    EXPECT_THROW(table.grow(3, copies), InvalidArgument);
  }
  EXPECT_EQ(pages.num_free(), 4);
  EXPECT_TRUE(copies.empty());
}

TEST(PageTable, ChangesNothingWhenPagesAreShort) {
  PageAllocator pages(2);
  std::vector<PageCopy> copies;
  PageTable table(pages, 4);
  ASSERT_TRUE(table.grow(4, copies));
  EXPECT_FALSE(table.grow(13, copies));
  EXPECT_EQ(table.length(), 4);
  EXPECT_EQ(pages.num_free(), 1);
}

TEST(PageTable, AForkSharesFullPagesAndCopiesTheOneItWritesInto) {
  PageAllocator pages(8);
  std::vector<PageCopy> copies;
  PageTable table(pages, 4);
  ASSERT_TRUE(table.grow(6, copies));
  PageTable fork = table.fork();
  EXPECT_EQ(pages.num_free(), 6);

  ASSERT_TRUE(fork.grow(7, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, table.pages()[1]);
  EXPECT_EQ(copies[0].to, fork.pages()[1]);
  EXPECT_EQ(fork.pages()[0], table.pages()[0]);
  EXPECT_NE(fork.pages()[1], table.pages()[1]);

  // The original is alone on its last page now, and writes into it without a copy.
  ASSERT_TRUE(table.grow(8, copies));
  EXPECT_EQ(copies.size(), 1u);
}

TEST(PageTable, AForkAtAPageBorderCopiesNothing) {
  PageAllocator pages(8);
  std::vector<PageCopy> copies;
  PageTable table(pages, 4);
  ASSERT_TRUE(table.grow(8, copies));
  PageTable fork = table.fork();
  ASSERT_TRUE(fork.grow(9, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(fork.pages()[1], table.pages()[1]);
}

TEST(PageTable, TruncationIntoASharedPageCopiesBeforeTheNextWrite) {
  PageAllocator pages(8);
  std::vector<PageCopy> copies;
  PageTable table(pages, 4);
  ASSERT_TRUE(table.grow(8, copies));
  PageTable fork = table.fork();
  fork.truncate(5);
  EXPECT_EQ(fork.pages().size(), 2u);
  ASSERT_TRUE(fork.grow(6, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, table.pages()[1]);
}

TEST(PageTable, MovesWithItsPages) {
  PageAllocator pages(4);
  std::vector<PageCopy> copies;
  PageTable table(pages, 4);
  ASSERT_TRUE(table.grow(8, copies));
  PageTable moved = std::move(table);
  EXPECT_EQ(moved.length(), 8);
  table = PageTable(pages, 4);
  EXPECT_EQ(pages.num_free(), 2);
}

// A model of the cache: what each page holds, written only through tables that hold it alone.
TEST(PageTable, AnyCourseOfForksTruncationsAndGrowthKeepsEverySequencesContents) {
  constexpr int kPages = 40;
  constexpr int kPageSize = 3;
  struct Entry {
    PageTable table;
    std::vector<int> contents;
  };
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    PageAllocator pages(kPages);
    std::vector<std::vector<int>> memory(kPages, std::vector<int>(kPageSize, -1));
    std::deque<Entry> entries;
    entries.push_back({PageTable(pages, kPageSize), {}});
    int next_value = 0;
    for (int turn = 0; turn < 300; ++turn) {
      Entry& entry = entries[random() % entries.size()];
      switch (random() % 4) {
        case 0: {
          if (entries.size() < 8) {
            Entry copy{entry.table.fork(), entry.contents};
            entries.push_back(std::move(copy));
          }
          break;
        }
        case 1: {
          const int length = static_cast<int>(random() % (entry.contents.size() + 1));
          entry.table.truncate(length);
          entry.contents.resize(static_cast<std::size_t>(length));
          break;
        }
        default: {
          std::vector<PageCopy> copies;
          const int length = entry.table.length() + static_cast<int>(random() % 5);
          const int free_before = pages.num_free();
          const int needed = entry.table.pages_needed(length);
          if (!entry.table.grow(length, copies)) {
            EXPECT_GT(needed, free_before);
            if (entries.size() > 1) entries.pop_front();
            break;
          }
          EXPECT_EQ(free_before - pages.num_free(), needed);
          for (const PageCopy copy : copies)
            memory[static_cast<std::size_t>(copy.to)] = memory[static_cast<std::size_t>(copy.from)];
          for (auto position = static_cast<int>(entry.contents.size()); position < length; ++position) {
            const int page = entry.table.pages()[static_cast<std::size_t>(position / kPageSize)];
            EXPECT_EQ(pages.references(page), 1);
            memory[static_cast<std::size_t>(page)][static_cast<std::size_t>(position % kPageSize)] = next_value;
            entry.contents.push_back(next_value++);
          }
        }
      }
      for (const Entry& each : entries)
        for (std::size_t i = 0; i < each.contents.size(); ++i)
          ASSERT_EQ(memory[static_cast<std::size_t>(each.table.pages()[i / kPageSize])][i % kPageSize],
                    each.contents[i]);
    }
    entries.clear();
    EXPECT_EQ(pages.num_free(), kPages);
  }
}

}  // namespace
}  // namespace heddle

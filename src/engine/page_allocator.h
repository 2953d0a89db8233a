// Ownership of the pages of the key-value cache. Pages are reference-counted, so that forks share their common pages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "step/step_plan.h"

namespace heddle {

class PageAllocator {
 public:
  explicit PageAllocator(int num_pages);

  int num_pages() const { return static_cast<int>(references_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int references(int page) const { return references_.at(static_cast<std::size_t>(page)); }

  std::optional<int> allocate();  // with one reference; nothing when no page is free
  void retain(int page);          // throws InvalidArgument when the page is free, as release does
  void release(int page);

 private:
  std::vector<int> references_;
  std::vector<int> free_;  // taken from the back: the page released last is warm
};

// The pages of one sequence. Movable; releases its pages at the end of its life. The allocator must outlive it.
class PageTable {
 public:
  PageTable(PageAllocator& allocator, int page_size);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { truncate(0); }

  int length() const { return length_; }  // tokens
  std::span<const std::int32_t> pages() const { return pages_; }

  // Pages that grow(length) would allocate.
  int pages_needed(int length) const;

  // Makes room for `length` >= length() tokens that only this sequence writes. Replaces a last page that is shared and
  // partly filled; `copies` receives the copy that the cache must make before anything is written. Returns false, and
  // changes nothing, when too few pages are free.
  bool grow(int length, std::vector<PageCopy>& copies);

  // Appends a full page that others may use, too. length() must be a multiple of the page size.
  void share(int page);

  // A second sequence with the same tokens so far, which shares all pages.
  PageTable fork() const;

  // Drops all tokens from `length` on, and releases pages that become empty.
  void truncate(int length);

 private:
  bool last_page_is_shared() const;

  PageAllocator* allocator_;
  int page_size_;
  int length_ = 0;
  std::vector<std::int32_t> pages_;
};

}  // namespace heddle

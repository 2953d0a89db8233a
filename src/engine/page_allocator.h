// Who owns which page of the key-value cache. Pages are counted, so that forks share what they have in common.
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

  std::optional<int> allocate();  // with one reference; nothing when none is free
  void retain(int page);          // throws InvalidArgument when the page is free, as release does
  void release(int page);

 private:
  std::vector<int> references_;
  std::vector<int> free_;  // taken from the back: what was released last is warm
};

// The pages of one sequence. Moves, and gives its pages back when it ends; the allocator must outlive it.
class PageTable {
 public:
  PageTable(PageAllocator& allocator, int page_size);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { truncate(0); }

  int length() const { return length_; }  // tokens
  std::span<const std::int32_t> pages() const { return pages_; }

  // Pages that grow(length) would take from the allocator.
  int pages_needed(int length) const;

  // Makes room for `length` >= length() tokens that this sequence alone writes. A last page that is shared and partly
  // filled is replaced; `copies` receives the copy that the cache has to make before anything is written.
  // Returns false, and changes nothing, when too few pages are free.
  bool grow(int length, std::vector<PageCopy>& copies);

  // A second sequence with the same tokens so far, sharing all pages.
  PageTable fork() const;

  // Forgets all tokens from `length` on; pages that become empty are given back.
  void truncate(int length);

 private:
  bool last_page_is_shared() const;

  PageAllocator* allocator_;
  int page_size_;
  int length_ = 0;
  std::vector<std::int32_t> pages_;
};

}  // namespace heddle

#include "engine/page_allocator.h"

#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

PageAllocator::PageAllocator(int num_pages) {
  require(num_pages >= 1, "a cache needs at least one page, not {}", num_pages);
  references_.assign(static_cast<std::size_t>(num_pages), 0);
  free_.resize(static_cast<std::size_t>(num_pages));
  std::iota(free_.rbegin(), free_.rend(), 0);
}

std::optional<int> PageAllocator::allocate() {
  if (free_.empty()) return std::nullopt;
  const int page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PageAllocator::retain(int page) {
  require(references(page) > 0, "page {} is free and cannot be shared", page);
  ++references_[static_cast<std::size_t>(page)];
}

void PageAllocator::release(int page) {
  require(references(page) > 0, "page {} is released more often than it was taken", page);
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

PageTable::PageTable(PageAllocator& allocator, int page_size) : allocator_(&allocator), page_size_(page_size) {
  require(page_size >= 1, "a page of {} tokens", page_size);
}

PageTable::PageTable(PageTable&& other) noexcept
    : allocator_(other.allocator_),
      page_size_(other.page_size_),
      length_(std::exchange(other.length_, 0)),
      pages_(std::move(other.pages_)) {
  other.pages_.clear();
}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(page_size_, other.page_size_);
  std::swap(length_, other.length_);
  std::swap(pages_, other.pages_);
  return *this;
}

bool PageTable::last_page_is_shared() const {
  return length_ % page_size_ != 0 && allocator_->references(pages_.back()) > 1;
}

int PageTable::pages_needed(int length) const {
  const int more = ceil_div(length, page_size_) - static_cast<int>(pages_.size());
  return more + (length > length_ && last_page_is_shared() ? 1 : 0);
}

bool PageTable::grow(int length, std::vector<PageCopy>& copies) {
  require(length >= length_, "cannot grow from {} tokens to {}", length_, length);
  if (pages_needed(length) > allocator_->num_free()) return false;
  if (length > length_ && last_page_is_shared()) {
    const int own = *allocator_->allocate();
    copies.push_back({.from = pages_.back(), .to = own});
    allocator_->release(pages_.back());
    pages_.back() = own;
  }
  while (static_cast<int>(pages_.size()) < ceil_div(length, page_size_)) pages_.push_back(*allocator_->allocate());
  length_ = length;
  return true;
}

void PageTable::share(int page) {
  require(length_ % page_size_ == 0, "a page cannot follow {} tokens in pages of {}", length_, page_size_);
  allocator_->retain(page);
  pages_.push_back(page);
  length_ += page_size_;
}

PageTable PageTable::fork() const {
  PageTable copy(*allocator_, page_size_);
  for (const int page : pages_) allocator_->retain(page);
  copy.pages_ = pages_;
  copy.length_ = length_;
  return copy;
}

void PageTable::truncate(int length) {
  require(length >= 0 && length <= length_, "cannot truncate {} tokens to {}", length_, length);
  while (static_cast<int>(pages_.size()) > ceil_div(length, page_size_)) {
    allocator_->release(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
}

}  // namespace heddle

// Sequences with a paged cache, for tests: every slot, page and page table entry that holds no token is poisoned.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <span>

#include "kernels/attention/paged_kv.h"
#include "operands.h"

namespace heddle {

struct TestSequence {
  int context_len;
  int num_new_tokens;
  std::uint32_t seed = 1;  // of its keys and values
};

struct CacheShape {
  int num_kv_heads = 1;
  int head_dim = 16;
  int page_size = 16;
  DType dtype = DType::float32;
};

class Sequences {
 public:
  Sequences(const CacheShape& shape, const std::vector<TestSequence>& sequences) : shape_(shape), query_start_{0} {
    for (const TestSequence& s : sequences) {
      context_len_.push_back(s.context_len);
      query_start_.push_back(query_start_.back() + s.num_new_tokens);
      max_query_len_ = std::max(max_query_len_, s.num_new_tokens);
      max_context_len_ = std::max(max_context_len_, s.context_len);
      stride_ = std::max(stride_, (s.context_len + shape.page_size - 1) / shape.page_size + 1);
    }
    const int num_pages = static_cast<int>(sequences.size()) * stride_;
    std::vector<std::int32_t> free(static_cast<std::size_t>(num_pages));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), std::mt19937(7));
    page_table_.assign(static_cast<std::size_t>(num_pages), kWildPage);
    const auto elements =
        static_cast<std::size_t>(num_pages) * row_elements() * static_cast<std::size_t>(shape.page_size);
    keys_ = std::make_unique<Elements>(elements, shape.dtype, 1);
    values_ = std::make_unique<Elements>(elements, shape.dtype, 3);
    keys_->poison();
    values_->poison();
    for (std::size_t i = 0; i < sequences.size(); ++i)
      for (int page = 0; page * shape.page_size < sequences[i].context_len; ++page, free.pop_back())
        page_table_[i * static_cast<std::size_t>(stride_) + static_cast<std::size_t>(page)] = free.back();
  }

  // Sets all positions of all sequences to random numbers that depend on the sequence's seed, position and head alone.
  void fill(const std::vector<TestSequence>& sequences) {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto count = static_cast<std::size_t>(sequences[i].context_len) * row_elements();
      set_all(static_cast<int>(i), keys_->data(), numbers_of(2 * sequences[i].seed, count));
      set_all(static_cast<int>(i), values_->data(), numbers_of(2 * sequences[i].seed + 1, count));
    }
  }

  PagedKv kv() const {
    return {keys_->data(), values_->data(), shape_.num_kv_heads, shape_.page_size, shape_.head_dim, shape_.dtype};
  }
  PagedSequences view() const {
    return {.query_start = query_start_.data(),
            .context_len = context_len_.data(),
            .page_table = page_table_.data(),
            .num_sequences = static_cast<int>(context_len_.size()),
            .page_table_stride = stride_,
            .max_query_len = max_query_len_,
            .max_context_len = max_context_len_};
  }
  int num_tokens() const { return query_start_.back(); }
  const Elements& keys() const { return *keys_; }
  const Elements& values() const { return *values_; }

  std::size_t element(int sequence, int position, int head) const {
    const std::int32_t page = view().pages(sequence)[position / shape_.page_size];
    return kv().offset(page, head, position % shape_.page_size);
  }
  // [positions, head_dim] of one head.
  std::vector<float> keys_of(int sequence, int head) const { return head_of(*keys_, sequence, head); }
  std::vector<float> values_of(int sequence, int head) const { return head_of(*values_, sequence, head); }

  void set_value(int sequence, int position, int head, float value) {
    const std::vector<float> row(static_cast<std::size_t>(shape_.head_dim), value);
    write(values_->data(), sequence, position, head, row.data());
  }

  // Poisons the keys and values of positions [0, end), and the page table's entries of pages that lie wholly there.
  void forget_before(int sequence, int end) {
    const std::vector<float> row(static_cast<std::size_t>(shape_.head_dim), kPoison);
    for (int position = 0; position < end; ++position)
      for (int head = 0; head < shape_.num_kv_heads; ++head)
        for (void* pages : {keys_->data(), values_->data()}) write(pages, sequence, position, head, row.data());
    for (int page = 0; page < end / shape_.page_size; ++page)
      page_table_[static_cast<std::size_t>(sequence) * static_cast<std::size_t>(stride_) +
                  static_cast<std::size_t>(page)] = kWildPage;
  }

 private:
  static constexpr std::int32_t kWildPage = -1'000'000;

  // The first random numbers of a seed, drawn once a thread: drawing took most of the time of tests with hundreds of caches.
  static std::span<const float> numbers_of(std::uint32_t seed, std::size_t count) {
    thread_local std::map<std::uint32_t, std::vector<float>> drawn;
    std::vector<float>& numbers = drawn[seed];
    if (numbers.size() < count) numbers = random_floats(count, seed);
    return {numbers.data(), count};
  }

  std::size_t row_elements() const {
    return static_cast<std::size_t>(shape_.num_kv_heads) * static_cast<std::size_t>(shape_.head_dim);
  }
  void write(void* pages, int sequence, int position, int head, const float* row) {
    convert(row, DType::float32,
            static_cast<std::byte*>(pages) + element(sequence, position, head) * size_of(shape_.dtype), shape_.dtype,
            static_cast<std::size_t>(shape_.head_dim));
  }
  void set_all(int sequence, void* pages, std::span<const float> rows) {
    for (int position = 0; position < context_len_[static_cast<std::size_t>(sequence)]; ++position)
      for (int head = 0; head < shape_.num_kv_heads; ++head)
        write(pages, sequence, position, head,
              rows.data() + static_cast<std::size_t>(position) * row_elements() + head * shape_.head_dim);
  }
  std::vector<float> head_of(const Elements& pages, int sequence, int head) const {
    std::vector<float> result;
    for (int position = 0; position < context_len_[static_cast<std::size_t>(sequence)]; ++position) {
      std::vector<float> row(static_cast<std::size_t>(shape_.head_dim));
      convert(static_cast<const std::byte*>(pages.data()) + element(sequence, position, head) * size_of(shape_.dtype),
              shape_.dtype, row.data(), DType::float32, row.size());
      result.insert(result.end(), row.begin(), row.end());
    }
    return result;
  }

  CacheShape shape_;
  int stride_ = 1, max_query_len_ = 0, max_context_len_ = 0;
  std::vector<std::int32_t> query_start_, context_len_, page_table_;
  std::unique_ptr<Elements> keys_, values_;
};

}  // namespace heddle

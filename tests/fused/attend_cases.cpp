// The course of FlashDecode::attend: chunks of prompts and single tokens, with windows, over caches of which each rank has
// a shard; in rounds of few rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/checked.h"
#include "fused/course_rank.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/numbers.h"

namespace heddle {
namespace {

constexpr int kShardPage = 4, kAttendDim = 20;

// A step's sequences, all their keys and values, and this rank's cache.
struct AttendCall {
  int heads = 0, kv_heads = 0, value_dim = 0, window = 0;
  float scale = 0;
  KvShard shard;
  RowShares shares;
  DType dtype = DType::float32;
  std::vector<std::int32_t> context, starts{0}, table;
  std::vector<std::vector<float>> keys, values;  // [sequence][position, kv_head, dim]
  std::vector<std::byte> cached_keys, cached_values;
  std::vector<float> q, y;
  int table_stride = 0;

  PagedKv kv() {
    return {.keys = cached_keys.data(),
            .values = cached_values.data(),
            .num_kv_heads = kv_heads,
            .page_size = kShardPage,
            .head_dim = kAttendDim,
            .dtype = dtype,
            .shard = shard};
  }

  std::size_t at(int position, int kv_head) const {
    return (static_cast<std::size_t>(position) * static_cast<std::size_t>(kv_heads) +
            static_cast<std::size_t>(kv_head)) *
           kAttendDim;
  }

  // Gives each sequence its pages, in another order than its tokens, and writes what is this rank's.
  void fill_cache(std::uint32_t seed) {
    const auto sequences = static_cast<int>(context.size());
    const int tokens_of_page = kShardPage * shard.ranks;
    for (const std::int32_t length : context)
      table_stride = std::max(table_stride, ceil_div(static_cast<int>(length), tokens_of_page));
    const int num_pages = sequences * table_stride;
    for (int i = 0; i < num_pages; ++i) table.push_back(num_pages - 1 - i);
    const std::size_t bytes = static_cast<std::size_t>(num_pages * kv_heads * kShardPage * kAttendDim) * size_of(dtype);
    cached_keys.assign(bytes, std::byte{0xff});  // NaN: what nobody wrote may not be read
    cached_values.assign(bytes, std::byte{0xff});
    for (int s = 0; s < sequences; ++s) {
      const auto of = static_cast<std::size_t>(s);
      const std::int64_t elements = std::int64_t{context[of]} * kv_heads * kAttendDim;
      keys.push_back(numbers(elements, seed + 2 * static_cast<std::uint32_t>(s), dtype));
      values.push_back(value_dim > 0 ? keys.back()
                                     : numbers(elements, seed + 2 * static_cast<std::uint32_t>(s) + 1, dtype));
      for (int position = 0; position < context[of]; ++position) {
        if (!kv().has(position)) continue;
        const int place = kv().place(position);
        const std::int32_t page =
            table[of * static_cast<std::size_t>(table_stride) + static_cast<std::size_t>(place / kShardPage)];
        for (int head = 0; head < kv_heads; ++head) {
          const std::size_t to = kv().offset(page, head, place % kShardPage) * size_of(dtype);
          convert(keys[of].data() + at(position, head), DType::float32, cached_keys.data() + to, dtype, kAttendDim);
          convert(values[of].data() + at(position, head), DType::float32, cached_values.data() + to, dtype, kAttendDim);
        }
      }
    }
  }

  AttentionParams params() {
    const std::int64_t columns = std::int64_t{heads} * kAttendDim;
    return {.q = {q.data(), starts.back(), columns, columns, DType::float32},
            .y = {y.data(), starts.back(), columns, columns, DType::float32},
            .kv = kv(),
            .sequences = {.query_start = starts.data(),
                          .context_len = context.data(),
                          .page_table = table.data(),
                          .num_sequences = static_cast<int>(context.size()),
                          .page_table_stride = table_stride,
                          .max_query_len = starts.back()},
            .num_heads = heads,
            .scale = scale,
            .window = window,
            .value_dim = value_dim};
  }

  // Of one row and head, in float64.
  std::vector<double> exact(int sequence, int position, int row, int head) const {
    const auto of = static_cast<std::size_t>(sequence);
    const float* const query = q.data() + (static_cast<std::size_t>(row * heads + head)) * kAttendDim;
    const int kv_head = head / (heads / kv_heads), first = window > 0 ? std::max(0, position - window + 1) : 0;
    std::vector<double> scores;
    for (int key = first; key <= position; ++key) {
      double score = 0;
      for (int d = 0; d < kAttendDim; ++d)
        score += static_cast<double>(query[d]) *
                 static_cast<double>(keys[of][at(key, kv_head) + static_cast<std::size_t>(d)]);
      scores.push_back(score * static_cast<double>(scale));
    }
    const double most = *std::ranges::max_element(scores);
    double sum = 0;
    std::vector<double> result(static_cast<std::size_t>(value_dim > 0 ? value_dim : kAttendDim));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - most);
      sum += weight;
      for (std::size_t d = 0; d < result.size(); ++d)
        result[d] += weight * static_cast<double>(values[of][at(first + static_cast<int>(i), kv_head) + d]);
    }
    for (double& element : result) element /= sum;
    return result;
  }

  void check(int number) const {
    for (int sequence = 0, row = 0; sequence < static_cast<int>(context.size()); ++sequence) {
      const auto of = static_cast<std::size_t>(sequence);
      const int num_new = starts[of + 1] - starts[of];
      for (int token = 0; token < num_new; ++token, ++row) {
        if (shares.divides(starts.back()) && shares.owner(starts.back(), row) != shard.rank) continue;
        for (int head = 0; head < heads; ++head) {
          const std::vector<double> want = exact(sequence, context[of] - num_new + token, row, head);
          for (std::size_t d = 0; d < want.size(); ++d) {
            const float got = y[static_cast<std::size_t>(row * heads + head) * kAttendDim + d];
            // As decode_course: scores are off by head_dim roundings.
            if (!(std::abs(static_cast<double>(got) - want[d]) <= 2e-5))
              throw_error<Failure>(
                  "flash_decode, attend: call {} sequence {} token {} head {} element {} is {}, expected {}", number,
                  sequence, token, head, d, got, want[d]);
          }
        }
      }
    }
  }
};

}  // namespace

void attend_course(CourseRank& rank, const CourseHeads& form) {
  const KvShard shard{rank.fabric.rank(), rank.fabric.size()};
  FlashDecode fused(rank.fabric, world_of(rank.fabric),
                    {.max_sequences = 7,
                     .num_heads = form.heads,
                     .num_kv_heads = form.kv_heads,
                     .head_dim = kAttendDim,
                     .value_dim = form.value_dim});
  Draws shared(rank.course.seed + 31 * static_cast<std::uint32_t>(form.heads));
  std::vector<std::unique_ptr<AttendCall>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    auto call = std::make_unique<AttendCall>();
    call->heads = form.heads;
    call->kv_heads = form.kv_heads;
    call->value_dim = form.value_dim;
    call->shard = shard;
    call->dtype = form.dtype;
    call->scale = static_cast<float>(shared.between(1, 8)) / 8.0f;
    call->window = shared.between(0, 2) == 0 ? static_cast<int>(shared.between(1, 40)) : 0;
    const auto sequences = shared.between(1, 4);
    for (int s = 0; s < sequences; ++s) {
      const bool is_short = shared.between(0, 1) == 0;  // then some ranks have no key
      const auto length = static_cast<std::int32_t>(is_short ? shared.between(1, 6) : shared.between(7, 300));
      const auto num_new = shared.between(0, 2) == 0 ? std::min<std::int64_t>(length, shared.between(2, 20)) : 1;
      call->context.push_back(length);
      call->starts.push_back(call->starts.back() + static_cast<std::int32_t>(num_new));
    }
    const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
    call->fill_cache(seed);
    call->q = numbers(std::int64_t{call->starts.back()} * form.heads * kAttendDim, seed + 99, DType::float32);
    call->y.assign(call->q.size(), std::nanf(""));
    call->shares = {.rank = shard.rank, .ranks = shard.ranks, .always_whole = shared.between(0, 1) == 0};
    rank.be_late();
    fused.attend(call->params(), call->shares, rank.stream);
    flying.push_back(std::move(call));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    for (const auto& done : flying) done->check(number);
    flying.clear();
  }
}

}  // namespace heddle

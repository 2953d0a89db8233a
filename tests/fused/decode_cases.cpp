// The course of distributed flash decode.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "fused/course_rank.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/numbers.h"

namespace heddle {
namespace {

constexpr int kHeadDim = 20, kMostSequences = 4, kMostKeys = 150,
              kPageSize = 4;  // keys of a rank: more than a block of the softmax

// One rank's keys and values of all sequences. Every rank can make every rank's.
struct KeyShard {
  std::vector<float> keys, values;
  std::vector<bfloat16> keys16, values16;
  std::vector<std::int32_t> counts, table, starts;
  PagedKv kv;
  PagedSequences sequences;

  KeyShard(const std::vector<std::int32_t>& counts_of, const CourseHeads& form, std::uint32_t seed)
      : counts(counts_of) {
    const int stride = kMostKeys / kPageSize + 1;
    int pages = 0;
    table.assign(counts.size() * static_cast<std::size_t>(stride), -1);  // where no page is, none may be read
    for (std::size_t s = 0; s < counts.size(); ++s)
      for (int p = 0; p * kPageSize < counts[s]; ++p)
        table[s * static_cast<std::size_t>(stride) + static_cast<std::size_t>(p)] = pages++;
    for (std::int32_t& page : table)  // pages lie in another order than tokens
      if (page >= 0) page = pages - 1 - page;
    const std::int64_t elements = std::int64_t{pages} * form.kv_heads * kPageSize * kHeadDim;
    keys = numbers(elements, seed, form.dtype);
    values = form.value_dim > 0 ? keys : numbers(elements, seed + 1, form.dtype);
    keys16 = rounded(keys);
    values16 = rounded(values);
    const bool narrow = form.dtype == DType::bfloat16;
    kv = {narrow ? static_cast<void*>(keys16.data()) : keys.data(),
          narrow ? static_cast<void*>(values16.data()) : values.data(),
          form.kv_heads,
          kPageSize,
          kHeadDim,
          form.dtype};
    sequences = {.query_start = nullptr,
                 .context_len = counts.data(),
                 .page_table = table.data(),
                 .num_sequences = static_cast<int>(counts.size()),
                 .page_table_stride = stride};
  }
};

struct DecodeCall {
  CourseHeads form;
  int sequences = 0;
  float scale = 0;
  DecodeVariant variant = DecodeVariant::push;
  std::vector<float> q, y;
  std::vector<std::unique_ptr<KeyShard>> shards;

  FlashDecodeParams params(int rank, std::vector<float>& to) {
    const std::int64_t columns = std::int64_t{form.heads} * kHeadDim;
    const KeyShard& shard = *shards[static_cast<std::size_t>(rank)];
    return {.q = {q.data(), sequences, columns, columns, DType::float32},
            .y = {to.data(), sequences, columns, columns, DType::float32},
            .kv = shard.kv,
            .sequences = shard.sequences,
            .num_heads = form.heads,
            .scale = scale,
            .value_dim = form.value_dim};
  }
};

// Attention of one head in float64.
std::vector<double> exact_attention(const DecodeCall& call, int sequence, int head) {
  const float* const q = call.q.data() + static_cast<std::ptrdiff_t>(sequence * call.form.heads + head) * kHeadDim;
  const auto each_key = [&](const auto& use) {
    for (const auto& shard : call.shards)
      for (int j = 0; j < shard->counts[static_cast<std::size_t>(sequence)]; ++j) {
        const std::size_t at = shard->kv.offset(shard->sequences.pages(sequence)[j / kPageSize],
                                                head / (call.form.heads / call.form.kv_heads), j % kPageSize);
        double score = 0;
        for (std::size_t d = 0; d < kHeadDim; ++d)
          score += static_cast<double>(q[d]) * static_cast<double>(shard->keys[at + d]);
        use(score * static_cast<double>(call.scale), shard->values.data() + at);
      }
  };
  double most = -INFINITY, sum = 0;
  each_key([&](double score, const float*) { most = std::max(most, score); });
  std::vector<double> y(static_cast<std::size_t>(call.form.value_dim > 0 ? call.form.value_dim : kHeadDim));
  each_key([&](double score, const float* value) {
    const double weight = std::exp(score - most);
    sum += weight;
    for (std::size_t d = 0; d < y.size(); ++d) y[d] += weight * static_cast<double>(value[d]);
  });
  for (double& element : y) element = sum == 0 ? 0 : element / sum;
  return y;
}

void check_decoded(DecodeCall& call, int ranks, Stream& stream, int number) {
  for (int sequence = 0; sequence < call.sequences; ++sequence)
    for (int head = 0; head < call.form.heads; ++head) {
      const std::vector<double> want = exact_attention(call, sequence, head);
      for (std::size_t d = 0; d < want.size(); ++d) {
        const float got = call.y[static_cast<std::size_t>(sequence * call.form.heads + head) * kHeadDim + d];
        // An average of values of at most 1: weights are off by some 1e-6 where scores are off by head_dim roundings.
        if (!(std::abs(static_cast<double>(got) - want[d]) <= 2e-5))
          throw_error<Failure>("flash_decode {}: call {} sequence {} head {} element {} is {}, expected {}",
                               name_of(call.variant), number, sequence, head, d, got, want[d]);
      }
    }
  // The bits of the unfused stages, with the parts of all ranks.
  std::vector<float> whole(call.y.size(), std::nanf(""));
  const std::size_t of_rank = decode_part_floats(call.params(0, whole));
  std::vector<float> parts(of_rank * static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    partial_decode(call.params(rank, whole), parts.data() + static_cast<std::size_t>(rank) * of_rank, stream);
  combine_decode(call.params(0, whole), parts.data(), ranks, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (std::bit_cast<std::uint32_t>(whole[i]) != std::bit_cast<std::uint32_t>(call.y[i]))
      throw_error<Failure>("flash_decode {}: call {} element {} is {}, and {} by its stages one after the other",
                           name_of(call.variant), number, i, call.y[i], whole[i]);
}

}  // namespace

void decode_course(CourseRank& rank, const CourseHeads& form) {
  const int size = rank.fabric.size();
  FlashDecode fused(rank.fabric, world_of(rank.fabric),
                    {.max_sequences = kMostSequences,
                     .num_heads = form.heads,
                     .num_kv_heads = form.kv_heads,
                     .head_dim = kHeadDim,
                     .value_dim = form.value_dim});
  ThreadPool pool(1);
  Stream transfers(pool);
  Draws shared(rank.course.seed + static_cast<std::uint32_t>(form.heads));
  std::vector<std::unique_ptr<DecodeCall>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    auto call = std::make_unique<DecodeCall>();
    call->sequences = static_cast<int>(shared.between(1, kMostSequences));
    call->form = form;
    call->scale = static_cast<float>(shared.between(1, 8)) / 8.0f;
    call->variant = static_cast<DecodeVariant>(shared.between(0, 2));
    const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
    call->q = numbers(std::int64_t{call->sequences} * form.heads * kHeadDim, seed, DType::float32);
    call->y.assign(call->q.size(), std::nanf(""));
    for (int r = 0; r < size; ++r) {
      std::vector<std::int32_t> counts;
      for (int s = 0; s < call->sequences; ++s) {
        const auto kind = shared.between(0, 3);  // some ranks have no keys, some few, some several blocks
        counts.push_back(static_cast<std::int32_t>(kind == 0   ? 0
                                                   : kind == 3 ? shared.between(100, kMostKeys)
                                                               : shared.between(1, 9)));
      }
      call->shards.push_back(std::make_unique<KeyShard>(counts, form, seed + 10 + static_cast<std::uint32_t>(r) * 2));
    }
    rank.be_late();
    fused(call->params(rank.fabric.rank(), call->y), call->variant, rank.stream, transfers);
    flying.push_back(std::move(call));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    for (const auto& done : flying) check_decoded(*done, size, rank.stream, number);
    flying.clear();
  }
}

}  // namespace heddle

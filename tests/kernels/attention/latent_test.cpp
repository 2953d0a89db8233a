// Latent attention as its operators make it, absorbed and expanded, against float64 with the keys and values of every head
// expanded.
#include "kernels/attention/attention.h"
#include "kernels/attention/expanded_attention.h"
#include "kernels/attention/gather_latents.h"
#include "kernels/attention/latent_kv_write.h"
#include "kernels/linear/head_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

TEST(HeadLinear, AHeadHasTheBitsOfLinear) {
  constexpr int kHeads = 3;
  constexpr std::int64_t kOut = 50, kIn = 37, kInApart = 45, kOutApart = 61;
  for (const DType dtype : kDTypes)
    for (const std::int64_t tokens : {1, 5, 33}) {
      const Elements elements(random_floats(kHeads * kOut * kIn, 1), dtype);
      const Weight weight = one_block(elements, dtype, kHeads * kOut, kIn);
      const Rows x = Rows::random(tokens, (kHeads - 1) * kInApart + kIn, 2, 1, 3);
      const Rows y(tokens, (kHeads - 1) * kOutApart + kOut, 2), expected(tokens, kOut);
      on_cpu(3, [&](Stream& stream) {
        head_linear(
            {.x = x, .x_stride = kInApart, .weight = weight, .num_heads = kHeads, .y = y, .y_stride = kOutApart},
            stream);
      });
      for (int head = 0; head < kHeads; ++head) {
        Weight one = weight;
        one.blocks[0] = {weight.row(head * kOut), kOut};
        one.out_features = kOut;
        on_cpu(1, [&](Stream& stream) {
          linear({.x = Tensor(x).column_slice(head * kInApart, kIn), .weight = one, .y = expected}, stream);
        });
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t c = 0; c < kOut; ++c)
            ASSERT_EQ(y.row(t)[head * kOutApart + c], expected.row(t)[c]) << name_of(dtype) << " head " << head;
      }
      for (std::int64_t c = kOut; c < kOutApart; ++c) EXPECT_TRUE(std::isnan(y.row(0)[c]));  // between heads
      EXPECT_TRUE(y.gaps_untouched());
    }
}

TEST(HeadLinear, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Elements elements(random_floats(12 * 4, 1), DType::float32);
  const Weight weight = one_block(elements, DType::float32, 12, 4);
  const Rows x = Rows::random(2, 8, 1), y(2, 12);
  const auto attempt = [&](int heads, std::int64_t x_stride, std::int64_t y_stride) {
    head_linear({.x = x, .x_stride = x_stride, .weight = weight, .num_heads = heads, .y = y, .y_stride = y_stride},
                stream);
  };
  expect_invalid([&] { attempt(5, 4, 4); }, "head_linear: 12 rows for 5 heads");
  expect_invalid([&] { attempt(2, 3, 6); }, "head_linear: heads of 4 and 6 columns lie 3 and 6 apart");
  expect_invalid([&] { attempt(2, 5, 6); }, "head_linear: x is [2, 8], expected [2, 9]");
  expect_invalid([&] { attempt(2, 4, 7); }, "head_linear: y is [2, 12], expected [2, 13]");
}

struct LatentCase {
  int heads, nope, rope, value, latent;
};

// What a model has, and one step of it.
class LatentStep {
 public:
  LatentStep(const LatentCase& c, int page_size, const std::vector<TestSequence>& shape)
      : c_(c),
        shape_(shape),
        cache_({1, c.latent + c.rope, page_size, DType::float32}, shape),
        keys_(random_floats(static_cast<std::size_t>(c.heads * c.nope * c.latent), 1, 0.2f)),
        values_(random_floats(static_cast<std::size_t>(c.heads * c.value * c.latent), 2, 0.2f)),
        latents_(Rows::random(all_positions(), c.latent + c.rope, 3)),
        queries_(Rows::random(all_positions(), std::int64_t{c.heads} * (c.nope + c.rope), 4)) {
    for (std::int64_t row = 0; row < latents_.rows(); ++row)
      for (int head = 0; head < c.heads; ++head) {
        for (int d = 0; d < c.nope; ++d) expanded_.push_back(product(keys_, head * c.nope + d, latents_.row(row)));
        for (int d = 0; d < c.value; ++d) expanded_.push_back(product(values_, head * c.value + d, latents_.row(row)));
      }
    for (int i = 0; i < c.rope / 2; ++i) inv_freq_.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / c.rope)));
  }

  // The values of all heads of the new tokens [tokens, heads * value]: earlier positions were written before, one by
  // one.
  Rows run(int threads) {
    const std::int64_t width = c_.latent + c_.rope;
    const Elements absorbed_keys(transposed(), DType::float32), absorbed_values(values_, DType::float32);
    Rows result(cache_.num_tokens(), std::int64_t{c_.heads} * c_.value);
    on_cpu(threads, [&](Stream& stream) {
      append_older(stream);
      const Rows q = new_rows(queries_), latent = new_rows(latents_);
      const Rows query(q.rows(), c_.heads * width), attended(q.rows(), c_.heads * width);
      const std::vector<std::int32_t> positions = new_positions();
      const Weight to = one_block(absorbed_keys, DType::float32, std::int64_t{c_.heads} * c_.latent, c_.nope);
      const Weight from = one_block(absorbed_values, DType::float32, std::int64_t{c_.heads} * c_.value, c_.latent);
      head_linear({.x = Tensor(q).column_slice(0, (c_.heads - 1) * (c_.nope + c_.rope) + c_.nope),
                   .x_stride = c_.nope + c_.rope,
                   .weight = to,
                   .num_heads = c_.heads,
                   .y = Tensor(query).column_slice(0, (c_.heads - 1) * width + c_.latent),
                   .y_stride = width},
                  stream);
      latent_kv_write(params(q, latent, query, positions.data(), cache_.view()), stream);
      attention({.q = query,
                 .y = attended,
                 .kv = pages(),
                 .sequences = cache_.view(),
                 .num_heads = c_.heads,
                 .scale = static_cast<float>(scale()),
                 .value_dim = c_.latent},
                stream);
      head_linear({.x = Tensor(attended).column_slice(0, (c_.heads - 1) * width + c_.latent),
                   .x_stride = width,
                   .weight = from,
                   .num_heads = c_.heads,
                   .y = result,
                   .y_stride = c_.value},
                  stream);
      stream.synchronize();
    });
    return result;
  }

  // The same with keys and values of all heads, `piece` positions at a time. `rounded`: what is expanded is in bfloat16.
  Rows run_expanded(int threads, int piece, DType rounded = DType::float32) {
    const Elements up(interleaved(), rounded);
    const Weight weight = one_block(up, rounded, std::int64_t{c_.heads} * (c_.nope + c_.value), c_.latent);
    Rows result(cache_.num_tokens(), std::int64_t{c_.heads} * c_.value, 3);
    on_cpu(threads, [&](Stream& stream) {
      append_older(stream);
      const Rows q = new_rows(queries_), latent = new_rows(latents_);
      const std::vector<std::int32_t> positions = new_positions();
      latent_kv_write(params(q, latent, q, positions.data(), cache_.view()), stream);
      const PagedSequences all = cache_.view();
      for (int s = 0; s < all.num_sequences; ++s) {
        const int num_tokens = all.num_new_tokens(s), context = all.context_len[s];
        std::vector<float> state(expanded_state_floats(num_tokens, c_.heads, c_.value), kPoison);
        for (int first = 0; num_tokens > 0 && first < context; first += piece) {
          const int count = std::min(piece, context - first);
          const Elements gathered(static_cast<std::size_t>(count * (c_.latent + c_.rope)), rounded);
          const Tensor rows{const_cast<void*>(gathered.data()), count, c_.latent + c_.rope, c_.latent + c_.rope,
                            rounded};
          const Rows expanded(count, std::int64_t{c_.heads} * (c_.nope + c_.value), 5);
          const ExpandedSequence part{.num_tokens = num_tokens, .first_query = context - num_tokens, .num_keys = count};
          gather_latents({.kv = pages(), .page_table = all.pages(s), .first = first, .sequences = part, .rows = rows},
                         stream);
          linear({.x = rows.column_slice(0, c_.latent), .weight = weight, .y = expanded}, stream);
          expanded_attention({.q = q.part(all.query_start[s], num_tokens),
                              .keys_values = expanded,
                              .shared_keys = rows.column_slice(c_.latent, c_.rope),
                              .y = result.part(all.query_start[s], num_tokens),
                              .sequences = part,
                              .num_heads = c_.heads,
                              .value_dim = c_.value,
                              .scale = static_cast<float>(scale()),
                              .first_key = first,
                              .before = first == 0 ? nullptr : state.data(),
                              .after = first + count == context ? nullptr : state.data()},
                             stream);
          stream.synchronize();
        }
      }
    });
    EXPECT_TRUE(result.gaps_untouched());
    return result;
  }

  // The same in one call for all sequences, in float32.
  Rows run_expanded_together(int threads) {
    const Elements up(interleaved(), DType::float32);
    const Weight weight = one_block(up, DType::float32, std::int64_t{c_.heads} * (c_.nope + c_.value), c_.latent);
    Rows result(cache_.num_tokens(), std::int64_t{c_.heads} * c_.value, 3);
    on_cpu(threads, [&](Stream& stream) {
      append_older(stream);
      const Rows q = new_rows(queries_), latent = new_rows(latents_);
      const std::vector<std::int32_t> positions = new_positions();
      const PagedSequences all = cache_.view();
      latent_kv_write(params(q, latent, q, positions.data(), all), stream);
      ExpandedSequences sequences;
      for (const TestSequence& s : shape_)
        sequences.add({s.num_new_tokens, s.context_len - s.num_new_tokens, s.context_len});
      const Rows rows(sequences.num_key_rows(), c_.latent + c_.rope, 2),
          expanded(rows.rows(), std::int64_t{c_.heads} * (c_.nope + c_.value), 5);
      gather_latents({.kv = pages(),
                      .page_table = all.page_table,
                      .page_table_stride = all.page_table_stride,
                      .sequences = sequences,
                      .rows = rows},
                     stream);
      linear({.x = Tensor(rows).column_slice(0, c_.latent), .weight = weight, .y = expanded}, stream);
      expanded_attention({.q = q,
                          .keys_values = expanded,
                          .shared_keys = Tensor(rows).column_slice(c_.latent, c_.rope),
                          .y = result,
                          .sequences = sequences,
                          .num_heads = c_.heads,
                          .value_dim = c_.value,
                          .scale = static_cast<float>(scale())},
                         stream);
      stream.synchronize();
    });
    EXPECT_TRUE(result.gaps_untouched());
    return result;
  }

  // The largest difference of `result` from float64, of some dimensions.
  double largest_error(const Rows& result) const {
    double largest = 0;
    std::int64_t token = 0;
    for_new([&](int s, int p) {
      for (int head = 0; head < c_.heads; ++head)
        for (int d = 0; d < c_.value; d += 5) {
          const double error = std::abs(result.row(token)[head * c_.value + d] - exact(s, p, head, d));
          if (!(error <= largest)) largest = error;  // NaN sticks
        }
      ++token;
    });
    return largest;
  }

  // The same of one value in float64.
  double exact(int sequence, int position, int head, int dim) const {
    std::vector<double> scores, values;
    for (int j = 0; j <= position; ++j) {
      const float* latent = latents_.row(row_of(sequence, j));
      const double* expanded = expanded_.data() + row_of(sequence, j) * c_.heads * (c_.nope + c_.value);
      const double* key = expanded + head * (c_.nope + c_.value);
      const float* q = queries_.row(row_of(sequence, position)) + head * (c_.nope + c_.rope);
      double score = 0;
      for (int d = 0; d < c_.nope; ++d) score += q[d] * key[d];
      for (int i = 0; i < c_.rope / 2; ++i) {
        const auto [qa, qb] = turned(q + c_.nope + 2 * i, position, i);
        const auto [ka, kb] = turned(latent + c_.latent + 2 * i, j, i);
        score += qa * ka + qb * kb;
      }
      scores.push_back(score * scale());
      values.push_back(key[c_.nope + dim]);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0, result = 0;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - largest);
      sum += weight;
      result += weight * values[j];
    }
    return result / sum;
  }

  const std::vector<TestSequence>& shape() const { return shape_; }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(c_.nope + c_.rope)); }

  std::int64_t all_positions() const {
    std::int64_t sum = 0;
    for (const TestSequence& s : shape_) sum += s.context_len;
    return sum;
  }
  std::int64_t row_of(int sequence, int position) const {
    std::int64_t row = position;
    for (int s = 0; s < sequence; ++s) row += shape_[static_cast<std::size_t>(s)].context_len;
    return row;
  }

  double product(const std::vector<float>& matrix, int row, const float* latent) const {
    double sum = 0;
    for (int i = 0; i < c_.latent; ++i)
      sum += static_cast<double>(matrix[static_cast<std::size_t>(row * c_.latent + i)]) * latent[i];
    return sum;
  }
  std::pair<double, double> turned(const float* pair, int position, int i) const {
    const double angle = static_cast<float>(position) * inv_freq_[static_cast<std::size_t>(i)];
    return {pair[0] * std::cos(angle) - pair[1] * std::sin(angle),
            pair[1] * std::cos(angle) + pair[0] * std::sin(angle)};
  }

  // Head after head: [latent, nope].
  std::vector<float> transposed() const {
    std::vector<float> result;
    for (int head = 0; head < c_.heads; ++head)
      for (int i = 0; i < c_.latent; ++i)
        for (int d = 0; d < c_.nope; ++d)
          result.push_back(keys_[static_cast<std::size_t>((head * c_.nope + d) * c_.latent + i)]);
    return result;
  }

  // As kv_b_proj has them: of each head the rows of its keys, then of its values.
  std::vector<float> interleaved() const {
    std::vector<float> result;
    for (int head = 0; head < c_.heads; ++head) {
      result.insert(result.end(), keys_.begin() + head * c_.nope * c_.latent,
                    keys_.begin() + (head + 1) * c_.nope * c_.latent);
      result.insert(result.end(), values_.begin() + head * c_.value * c_.latent,
                    values_.begin() + (head + 1) * c_.value * c_.latent);
    }
    return result;
  }

  PagedKv pages() const {
    PagedKv kv = cache_.kv();
    kv.values = kv.keys;
    return kv;
  }
  LatentKvWriteParams params(const Rows& q, const Rows& latent, const Rows& query, const std::int32_t* positions,
                             const PagedSequences& sequences) const {
    return {.q = q,
            .latent = latent,
            .query = query,
            .positions = positions,
            .inv_freq = inv_freq_.data(),
            .num_heads = c_.heads,
            .rope_dim = c_.rope,
            .kv = pages(),
            .sequences = sequences};
  }

  template <class Use>
  void for_new(const Use& use) const {
    for (int s = 0; s < static_cast<int>(shape_.size()); ++s) {
      const TestSequence& one = shape_[static_cast<std::size_t>(s)];
      for (int p = one.context_len - one.num_new_tokens; p < one.context_len; ++p) use(s, p);
    }
  }
  Rows new_rows(const Rows& all) const {
    std::vector<float> values;
    for_new([&](int s, int p) {
      const float* row = all.row(row_of(s, p));
      values.insert(values.end(), row, row + all.columns());
    });
    return Rows::of(values, cache_.num_tokens(), all.columns(), 4);
  }
  std::vector<std::int32_t> new_positions() const {
    std::vector<std::int32_t> positions;
    for_new([&](int, int p) { positions.push_back(p); });
    return positions;
  }

  void append_older(Stream& stream) {
    const PagedSequences all = cache_.view();
    for (int s = 0; s < static_cast<int>(shape_.size()); ++s) {
      const TestSequence& one = shape_[static_cast<std::size_t>(s)];
      for (std::int32_t p = 0; p < one.context_len - one.num_new_tokens; ++p) {
        const std::int32_t start[] = {0, 1}, length = p + 1;
        const PagedSequences single{start, &length, all.pages(s), 1, all.page_table_stride, 1};
        const Rows q(1, queries_.columns()), query(1, std::int64_t{c_.heads} * (c_.latent + c_.rope));
        const float* row = latents_.row(row_of(s, p));
        const Rows latent = Rows::of({row, row + latents_.columns()}, 1, latents_.columns());
        latent_kv_write(params(q, latent, query, &p, single), stream);
        stream.synchronize();
      }
    }
  }

  LatentCase c_;
  std::vector<TestSequence> shape_;
  Sequences cache_;
  std::vector<float> keys_, values_;  // W_UK [heads * nope, latent], W_UV [heads * value, latent]
  Rows latents_, queries_;            // of all positions, sequence after sequence
  std::vector<double> expanded_;      // of each latent [heads, nope + value]: keys and values
  std::vector<float> inv_freq_;
};

TEST(LatentAttention, AbsorbedAgreesWithExpandedInFloat64) {
  const std::vector<TestSequence> shape = {{1, 1}, {9, 1}, {40, 40}, {33, 7}, {2, 0}};
  const LatentCase cases[] = {{2, 16, 8, 16, 32}, {3, 12, 10, 22, 40}, {1, 128, 64, 128, 512}};
  for (const LatentCase& c : cases) {
    SCOPED_TRACE(
        fmt::format("{} heads of {} + {}, values of {}, latents of {}", c.heads, c.nope, c.rope, c.value, c.latent));
    LatentStep step(c, 16, shape);
    const Rows result = step.run(2);
    std::int64_t token = 0;
    for (int s = 0; s < static_cast<int>(shape.size()); ++s) {
      const TestSequence& one = shape[static_cast<std::size_t>(s)];
      for (int p = one.context_len - one.num_new_tokens; p < one.context_len; ++p, ++token)
        for (int head = 0; head < c.heads; ++head)
          for (int d = 0; d < c.value; d += 5)
            // Sums of up to 576 products of numbers near 1 in float32, then a softmax of their results.
            ASSERT_NEAR(result.row(token)[head * c.value + d], step.exact(s, p, head, d), 2e-4)
                << "sequence " << s << " position " << p << " head " << head;
    }
  }
}

TEST(LatentAttention, BitsDependOnNeitherThreadsNorPages) {
  const std::vector<TestSequence> shape = {{9, 1}, {33, 7}};
  const LatentCase c{2, 16, 8, 16, 32};
  const Rows expected = LatentStep(c, 16, shape).run(1);
  EXPECT_EQ(bits(LatentStep(c, 16, shape).run(4)), bits(expected));
  EXPECT_EQ(bits(LatentStep(c, 3, shape).run(2)), bits(expected));
}

TEST(LatentAttention, ExpandedAgreesWithFloat64) {
  const std::vector<TestSequence> shape = {{1, 1}, {9, 1}, {40, 40}, {150, 137}, {300, 6}, {2, 0}};
  for (const LatentCase& c : {LatentCase{2, 16, 8, 16, 32}, LatentCase{3, 12, 10, 22, 40}})
    for (const int piece : {128, 256, 4096}) {
      LatentStep step(c, 16, shape);
      // Sums of up to 50 products of numbers near 1 in float32, then a softmax of their results.
      EXPECT_LE(step.largest_error(step.run_expanded(2, piece)), 2e-4) << c.heads << " heads, pieces of " << piece;
    }
  LatentStep real({1, 128, 64, 128, 512}, 32, {{33, 20}});
  EXPECT_LE(real.largest_error(real.run_expanded(2, 4096)), 2e-4);
  // bfloat16 weights and latents: a relative error of 2^-8 each, of sums of 32 products of numbers near 1 and 0.2.
  LatentStep rounded({2, 16, 8, 16, 32}, 16, {{150, 137}});
  EXPECT_LE(rounded.largest_error(rounded.run_expanded(2, 128, DType::bfloat16)), 0.1);
}

TEST(LatentAttention, ExpandedBitsDependOnNeitherThreadsNorPagesNorPieces) {
  const LatentCase c{2, 16, 8, 16, 32};
  const std::vector<TestSequence> shape = {{300, 139}, {200, 33}};
  const Rows expected = LatentStep(c, 16, shape).run_expanded(1, 4096);
  EXPECT_EQ(bits(LatentStep(c, 16, shape).run_expanded(4, 128)), bits(expected));
  EXPECT_EQ(bits(LatentStep(c, 3, shape).run_expanded(2, 256)), bits(expected));
  // The last tokens by themselves: earlier ones are then in the cache. Seven of them take another loop for few rows.
  for (const int last : {40, 7}) {
    const Rows alone = LatentStep(c, 16, {{300, last}, {200, 1}}).run_expanded(2, 128);
    EXPECT_EQ(bits(alone, 0, last), bits(expected, 139 - last, last));
  }
}

TEST(LatentAttention, SequencesOfOneCallHaveTheBitsOfTheirOwn) {
  const LatentCase c{2, 16, 8, 16, 32};
  const std::vector<TestSequence> shape = {{300, 139}, {128, 33}, {5, 5}, {260, 1}};
  const Rows expected = LatentStep(c, 16, shape).run_expanded(1, 4096);
  EXPECT_EQ(bits(LatentStep(c, 3, shape).run_expanded_together(4)), bits(expected));
}

TEST(ExpandedAttention, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows q = Rows::random(2, 2 * 12, 1), keys_values = Rows::random(3, 2 * (8 + 6), 2),
             shared = Rows::random(3, 4, 3);
  const Rows y(2, 2 * 6);
  const ExpandedAttentionParams good{.q = q,
                                     .keys_values = keys_values,
                                     .shared_keys = shared,
                                     .y = y,
                                     .sequences = ExpandedSequence{.num_tokens = 2, .first_query = 1, .num_keys = 3},
                                     .num_heads = 2,
                                     .value_dim = 6,
                                     .scale = 1};
  const auto attempt = [&](auto change) {
    ExpandedAttentionParams params = good;
    change(params);
    expanded_attention(params, stream);
  };
  attempt([](ExpandedAttentionParams&) {});
  stream.synchronize();
  expect_invalid([&] { attempt([](auto& p) { p.num_heads = 5; }); },
                 "expanded_attention: q has 24 columns for 5 heads");
  expect_invalid([&] { attempt([](auto& p) { p.value_dim = 0; }); }, "expanded_attention: value_dim is 0");
  expect_invalid([&] { attempt([](auto& p) { p.value_dim = 7; }); }, "keys_values is [3, 28], expected [3, 30]");
  expect_invalid([&] { attempt([](auto& p) { p.first_key = 64; }); }, "expected a multiple of 128");
  expect_invalid([&] { attempt([](auto& p) { p.first_key = 128; }); },
                 "without a state, and the first key at position 128");
  std::vector<float> state(expanded_state_floats(2, 2, 6));
  expect_invalid([&] { attempt([&](auto& p) { p.sequences.add({}), p.after = state.data(); }); },
                 "2 sequences with a state, expected one");
  expect_invalid([&] { attempt([](auto& p) { p.sequences.add({.num_tokens = 1, .num_keys = 1}); }); },
                 "q is [2, 24], expected [3, 24]");
  expect_invalid([&] { attempt([](auto& p) { p.shared_keys.columns = 12; }); }, "12 of them shared");
  expect_invalid([&] { attempt([](auto& p) { p.num_heads = 1, p.q.columns = 300; }); }, "keys of 300 elements");
}

TEST(GatherLatents, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Sequences one({1, 12, 4, DType::float32}, {{6, 1}}), two({2, 6, 4, DType::float32}, {{6, 1}});
  const Rows rows(6, 12), narrow(6, 8);
  const auto attempt = [&](const Sequences& cache, Tensor to, int first) {
    gather_latents({.kv = cache.kv(),
                    .page_table = cache.view().pages(0),
                    .first = first,
                    .sequences = ExpandedSequence{.num_keys = 6},
                    .rows = to},
                   stream);
  };
  expect_invalid([&] { attempt(two, rows, 0); }, "gather_latents: num_kv_heads 2");
  expect_invalid([&] { attempt(one, narrow, 0); }, "gather_latents: rows is [6, 8], expected [6, 12]");
  expect_invalid([&] { attempt(one, rows, -1); }, "gather_latents: first is -1");
}

TEST(LatentKvWrite, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Sequences cache({1, 12, 4, DType::float32}, {{1, 1}}), two({2, 6, 4, DType::float32}, {{1, 1}});
  const Rows q = Rows::random(1, 20, 1), latent = Rows::random(1, 12, 2), query(1, 24);
  const std::int32_t position = 0;
  const float inv_freq[] = {1, 1};
  const auto attempt = [&](int heads, int rope_dim, const Sequences& pages) {
    latent_kv_write({.q = q,
                     .latent = latent,
                     .query = query,
                     .positions = &position,
                     .inv_freq = inv_freq,
                     .num_heads = heads,
                     .rope_dim = rope_dim,
                     .kv = pages.kv(),
                     .sequences = pages.view()},
                    stream);
  };
  expect_invalid([&] { attempt(2, 4, two); }, "latent_kv_write: the cache has 2 heads, expected one latent");
  expect_invalid([&] { attempt(2, 3, cache); }, "latent_kv_write: rope_dim is 3");
  expect_invalid([&] { attempt(2, 12, cache); }, "latent_kv_write: rope_dim is 12");
  expect_invalid([&] { attempt(3, 4, cache); }, "latent_kv_write: q has 20 columns for 3 heads");
  expect_invalid([&] { attempt(1, 4, cache); }, "latent_kv_write: query is [1, 24], expected [1, 12]");
}

}  // namespace
}  // namespace heddle

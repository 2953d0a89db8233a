#include "kernels/rows/embedding.h"

#include "kernels/operands.h"

namespace heddle {
namespace {

TEST(Embedding, CopiesRowsWidened) {
  for (const DType dtype : kDTypes) {
    for (const int hidden : {1, 7, 72}) {
      for (const int threads : {1, 5}) {
        SCOPED_TRACE(fmt::format("{} hidden {} threads {}", name_of(dtype), hidden, threads));
        // Two blocks, as a vocabulary with added tokens may have.
        const Elements first(random_floats(static_cast<std::size_t>(5 * hidden), 1), dtype, 1);
        const Elements second(random_floats(static_cast<std::size_t>(3 * hidden), 2), dtype, 3);
        Weight table = one_block(first, dtype, 5, hidden);
        table.blocks[1] = {second.data(), 3};
        table.out_features = 8;
        std::vector<float> expected = first.floats();
        const std::vector<float> tail = second.floats();
        expected.insert(expected.end(), tail.begin(), tail.end());

        const std::vector<std::int32_t> tokens = {7, 0, 4, 5, 5};
        const Rows y(5, hidden, 3);
        on_cpu(threads, [&](Stream& stream) { embedding({.table = table, .tokens = tokens.data(), .y = y}, stream); });
        for (std::int64_t t = 0; t < 5; ++t)
          for (int i = 0; i < hidden; ++i)
            ASSERT_EQ(y.row(t)[i],
                      expected[static_cast<std::size_t>(tokens[static_cast<std::size_t>(t)] * hidden + i)]);
        EXPECT_TRUE(y.gaps_untouched());
      }
    }
  }
}

TEST(Embedding, FailsOnATokenOutsideTheTable) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Elements elements(random_floats(12, 1), DType::float32);
  const Weight table = one_block(elements, DType::float32, 4, 3);
  for (const std::int32_t bad : {4, -1}) {
    const std::vector<std::int32_t> tokens = {0, bad};
    const Rows y(2, 3);
    embedding({.table = table, .tokens = tokens.data(), .y = y}, stream);
    expect_invalid([&] { stream.synchronize(); }, fmt::format("token 1 has id {}, the table has 4 rows", bad));
  }
}

TEST(Embedding, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Elements elements(random_floats(12, 1), DType::float32);
  const Weight table = one_block(elements, DType::float32, 4, 3);
  const std::vector<std::int32_t> tokens = {0, 1};
  const Rows y(2, 3);
  expect_invalid([&] { embedding({.table = table, .tokens = nullptr, .y = y}, stream); }, "embedding: tokens is null");
  expect_invalid([&] { embedding({.table = table, .tokens = tokens.data(), .y = Rows(2, 4)}, stream); },
                 "embedding: y is [2, 4], expected [2, 3]");
  expect_invalid([&] { embedding({.table = {}, .tokens = tokens.data(), .y = y}, stream); }, "the weight is [0, 0]");
  embedding({.table = table, .tokens = nullptr, .y = {nullptr, 0, 3, 3}}, stream);
  stream.synchronize();
}

TEST(Embedding, OfAPartOfTheTableIsZeroWhereAnotherPartHasTheToken) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Elements elements(random_floats(12, 1), DType::float32);
  const Weight part = one_block(elements, DType::float32, 4, 3);  // tokens 5 to 8 of 10
  const std::vector<std::int32_t> tokens = {8, 4, 5, 9};
  const Rows y(4, 3);
  const EmbeddingParams params{.table = part, .tokens = tokens.data(), .y = y, .first_token = 5, .vocab_size = 10};
  embedding(params, stream);
  stream.synchronize();
  const std::vector<float> table = elements.floats();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(y.row(0)[i], table[static_cast<std::size_t>(9 + i)]);
    EXPECT_EQ(y.row(1)[i], 0);
    EXPECT_EQ(y.row(2)[i], table[static_cast<std::size_t>(i)]);
    EXPECT_EQ(y.row(3)[i], 0);
  }
  const std::vector<std::int32_t> bad = {0, 1, 2, 10};
  EmbeddingParams wrong = params;
  wrong.tokens = bad.data();
  embedding(wrong, stream);
  expect_invalid([&] { stream.synchronize(); }, "token 3 has id 10, the table has 10 rows");
  wrong = params;
  wrong.first_token = 7;
  expect_invalid([&] { embedding(wrong, stream); }, "a table of 4 rows from token 7 on, of 10 tokens");
}

}  // namespace
}  // namespace heddle

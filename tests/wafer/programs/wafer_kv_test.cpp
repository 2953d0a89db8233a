// The KV cache on a mesh: which row holds which token, and that values move with them.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.h"
#include "wafer/cost/wafer_cost.h"
#include "wafer/programs/kv_cache.h"
#include "wafer/programs/kv_rows.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::int64_t> counts(const KvRows& rows) {
  std::vector<std::int64_t> result;
  for (int row = 0; row < rows.rows(); ++row) result.push_back(rows.count(row));
  return result;
}

std::int64_t difference(const KvRows& rows) {
  const auto all = counts(rows);
  return *std::max_element(all.begin(), all.end()) - *std::min_element(all.begin(), all.end());
}

TEST(WaferKv, ShiftFillsTheRowsFromTheLastOneUp) {
  KvRows rows(3, KvMethod::shift);
  EXPECT_THAT(rows.append(), ElementsAre());  // as figure 5: equal rows, nothing moves
  EXPECT_THAT(counts(rows), ElementsAre(0, 0, 1));
  EXPECT_THAT(rows.append(), ElementsAre(2));
  EXPECT_THAT(counts(rows), ElementsAre(0, 1, 1));
  EXPECT_THAT(rows.append(), ElementsAre(1, 2));
  EXPECT_THAT(counts(rows), ElementsAre(1, 1, 1));
  EXPECT_THAT(rows.append(), ElementsAre());
  EXPECT_THAT(counts(rows), ElementsAre(1, 1, 2));
}

TEST(WaferKv, ConcatFillsTheLastRowAlone) {
  KvRows rows(3, KvMethod::concat);
  rows.fill(4);
  EXPECT_THAT(counts(rows), ElementsAre(1, 1, 2));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(rows.append().empty());
  EXPECT_THAT(counts(rows), ElementsAre(1, 1, 12));
}

TEST(WaferKv, RowsStayBalancedAndInOrderAtEachOfTenThousandAppends) {
  for (const int height : {1, 3, 7, 33}) {
    KvRows rows(height, KvMethod::shift);
    rows.fill(5);
    for (int i = 0; i < 10000; ++i) {
      rows.append();
      ASSERT_LE(difference(rows), 1) << "append " << i << " on " << height << " rows";
      ASSERT_EQ(rows.size(), 6 + i);
      ASSERT_TRUE(std::ranges::is_sorted(counts(rows))) << "the odd ones are not in the last rows";
    }
    EXPECT_EQ(rows.row_of(0), 0);
    EXPECT_EQ(rows.row_of(rows.size() - 1), height - 1);
  }
}

// Each token's key is its number, its value the negative, so that a lost token is detected.
TEST(WaferKv, ValuesFollowTheirTokensAtEveryAppend) {
  constexpr int kWidth = 5, kTile = 2, kRows = 4;
  KvRows rows(kRows, KvMethod::shift);
  WaferKvCache cache(kWidth, kTile);
  for (int token = 0; token < 1000; ++token) {
    if (token % 50 == 0) cache.reserve(kRows, token / kRows + 14, rows);
    for (const int row : rows.append()) {  // from the top down: a full row passes its oldest token before it gets one
      const std::int64_t passed = rows.first(row) - 1;
      std::copy_n(cache.key(row, passed), kTile * cache.pitch(), cache.key(row - 1, passed));
      std::copy_n(cache.value(row, passed), kTile * cache.pitch(), cache.value(row - 1, passed));
    }
    for (int e = 0; e < kTile * kWidth; ++e) {
      const int place = e / kWidth * static_cast<int>(cache.pitch()) + e % kWidth;
      cache.key(kRows - 1, token)[place] = static_cast<float>(token * 10 + e);
      cache.value(kRows - 1, token)[place] = -static_cast<float>(token * 10 + e);
    }
    for (int row = 0; row < kRows; ++row)
      for (std::int64_t held = rows.first(row); held < rows.first(row + 1); ++held)
        for (int e = 0; e < kTile * kWidth; ++e) {
          const int place = e / kWidth * static_cast<int>(cache.pitch()) + e % kWidth;
          ASSERT_EQ(cache.key(row, held)[place], static_cast<float>(held * 10 + e))
              << "token " << held << " of " << token;
          ASSERT_EQ(cache.value(row, held)[place], -static_cast<float>(held * 10 + e));
        }
  }
}

TEST(WaferKv, ARowThatHoldsNoTokenTakesNone) {
  KvRows rows(4, KvMethod::concat, {.tokens_in_row = 0});
  EXPECT_THROW(rows.append(), InputError);
  EXPECT_EQ(rows.size(), 0);
}

TEST(WaferKv, HoldsAsManyTokensAsTheCapacitySaysAndRefusesTheNext) {
  const WaferModel model{.num_layers = 32,
                         .hidden = 4096,
                         .intermediate = 14336,
                         .num_heads = 32,
                         .num_kv_heads = 8,
                         .head_dim = 128,
                         .vocab = 128256};
  const KvCapacity capacity = kv_capacity(plmr_preset("wse-2"), model, {360, 360});
  KvRows shift(360, KvMethod::shift, {.tokens = capacity.shift_tokens});
  shift.fill(capacity.shift_tokens - 1);
  shift.append();
  EXPECT_EQ(shift.size(), capacity.shift_tokens);
  EXPECT_LE(difference(shift), 1);
  EXPECT_THAT([&] { shift.append(); }, ThrowsMessage<InputError>(HasSubstr(std::to_string(capacity.shift_tokens))));
  EXPECT_EQ(shift.size(), capacity.shift_tokens);

  KvRows concat(360, KvMethod::concat, {.tokens_in_row = capacity.concat_tokens});
  for (std::int64_t i = 0; i < capacity.concat_tokens; ++i) concat.append();
  EXPECT_THAT([&] { concat.append(); }, ThrowsMessage<InputError>(HasSubstr("shifting")));
}

}  // namespace
}  // namespace heddle

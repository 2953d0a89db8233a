#include "collectives/algorithm.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "collectives/collective_memory.h"
#include "machine/tuned_store.h"

namespace heddle {
namespace {

const CutOffs kTable{
    {1024, {Algorithm::low_latency, 4}}, {1 << 20, {Algorithm::direct, 8, 256}}, {.choice = {Algorithm::vendor}}};

TEST(CutOffs, ALineHoldsUpToItsSize) {
  EXPECT_EQ(choose(kTable, 0).algorithm, Algorithm::low_latency);
  EXPECT_EQ(choose(kTable, 1024).algorithm, Algorithm::low_latency);
  EXPECT_EQ(choose(kTable, 1025), (Choice{Algorithm::direct, 8, 256}));
  EXPECT_EQ(choose(kTable, std::size_t{1} << 40).algorithm, Algorithm::vendor);
  EXPECT_THROW(choose({}, 1), InvalidArgument);
}

TEST(CutOffs, DefaultsCoverEverySizeAndStayWithinWhatAKernelMayHave) {
  for (int i = 0; i < kNumCollectives; ++i)
    for (const char* fabric : {"shm", "mpi", "nvlink"})
      for (const int size : {1, 2, 4, 8, 72}) {
        const CutOffs table = default_cut_offs(static_cast<Collective>(i), fabric, size);
        ASSERT_FALSE(table.empty());
        EXPECT_EQ(table.back().up_to_bytes, std::numeric_limits<std::size_t>::max());
        std::size_t before = 0;
        for (const CutOff& line : table) {
          EXPECT_GT(line.up_to_bytes, before);
          before = line.up_to_bytes;
          EXPECT_THAT(line.choice.blocks, testing::AllOf(testing::Ge(1), testing::Le(kMaxBlocks)));
        }
      }
}

TEST(CutOffs, ComeBackFromTheStoreForTheirTeamAlone) {
  TunedStore store({}, "machine", "1");
  put_tuned_cut_offs(store, Collective::all_reduce, "nvlink", 4, kTable);
  EXPECT_EQ(tuned_cut_offs(store, Collective::all_reduce, "nvlink", 4), kTable);
  EXPECT_EQ(tuned_cut_offs(store, Collective::all_reduce, "nvlink", 2), std::nullopt);
  EXPECT_EQ(tuned_cut_offs(store, Collective::all_gather, "nvlink", 4), std::nullopt);
}

TEST(CutOffs, OfAStoreThatSaysNonsenseAreNone) {
  using nlohmann::json;
  const json line{{"algorithm", "direct"}, {"blocks", 8u}, {"threads", 512u}};
  const auto with = [&](const char* name, const json& value) {
    json changed = line;
    changed[name] = value;
    return json::array({changed});
  };
  const json cases[] = {json::array(),
                        "direct",
                        with("algorithm", "guess"),
                        with("algorithm", 3),
                        with("blocks", 0),
                        with("blocks", kMaxBlocks + 1),
                        with("blocks", -1),
                        with("threads", 1024),
                        with("threads", 33u),       // no whole warps
                        with("up_to_bytes", 100u),  // nothing for what is larger
                        json::array({line, line})};
  for (const json& value : cases) {
    TunedStore store({}, "machine", "1");
    store.put("collective/shm/all_reduce/2", value);
    EXPECT_EQ(tuned_cut_offs(store, Collective::all_reduce, "shm", 2), std::nullopt) << value;
  }
}

TEST(CutOffs, OfGpusNameNoPuts) {
  const CutOffs puts{{.choice = {Algorithm::put}}};
  TunedStore store({}, "machine", "1");
  for (const char* fabric : {"nvlink", "shm"}) put_tuned_cut_offs(store, Collective::all_reduce, fabric, 2, puts);
  EXPECT_EQ(tuned_cut_offs(store, Collective::all_reduce, "nvlink", 2), std::nullopt);
  EXPECT_EQ(tuned_cut_offs(store, Collective::all_reduce, "shm", 2), puts);
}

TEST(Names, AreReadAsTheyAreWritten) {
  for (int i = 0; i < kNumCollectives; ++i)
    EXPECT_EQ(collective_named(name_of(static_cast<Collective>(i))), static_cast<Collective>(i));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(algorithm_named(name_of(static_cast<Algorithm>(i))), static_cast<Algorithm>(i));
  EXPECT_EQ(collective_named("reduce"), std::nullopt);
  EXPECT_EQ(algorithm_named(""), std::nullopt);
}

}  // namespace
}  // namespace heddle

// The pictures of `heddle bench block --figure`, from records as it writes them.
#include "cli/bench/block_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace heddle {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ordered_json way(const char* how, double us, ordered_json details = ordered_json::object()) {
  ordered_json way{{"how", how}, {"seconds", {{"median", us * 1e-6}}}};
  way.update(details);
  return way;
}

ordered_json record_of(int figure, ordered_json ways) {
  const ordered_json context{
      {"context", 4096}, {"shape", "64 heads"}, {"floor_seconds", 20e-6}, {"ways", std::move(ways)}};
  return {{"figure", figure},
          {"batch", 1},
          {"gpu", {{"name", "NVIDIA H200"}}},
          {"contexts", ordered_json::array({context})}};
}

TEST(BlockFigures, AreKnownByNumber) {
  for (const BlockFigure& figure : block_figures()) EXPECT_EQ(block_figure(figure.number), &figure);
  EXPECT_EQ(block_figure(0), nullptr);
  EXPECT_EQ(block_figure(18)->batch, 16);
  EXPECT_TRUE(block_figure(18)->takes_latents);
  EXPECT_EQ(block_figure(11)->shapes.size(), 3u);
}

TEST(BlockFigures, TheBlockAloneHasItsRooflineBeside) {
  for (const int figure : {9, 18})
    EXPECT_THAT(
        svg_of_block(record_of(figure, {way("separate operators", 30), way("clusters of 4", 50, {{"cluster", 4}})})),
        AllOf(HasSubstr("<svg"), HasSubstr("separate operators"), HasSubstr("roofline"), HasSubstr("4096 tokens"),
              HasSubstr("NVIDIA H200")));
}

TEST(BlockFigures, ClusterSizesAreALineForEachNumberOfHeads) {
  const std::string svg =
      svg_of_block(record_of(11, {way("separate operators", 30), way("clusters of 2", 60, {{"cluster", 2}}),
                                  way("clusters of 4", 50, {{"cluster", 4}})}));
  EXPECT_THAT(svg,
              AllOf(HasSubstr("64 heads, 4096 tokens"), HasSubstr("blocks of a cluster"), Not(HasSubstr("separate"))));
}

TEST(BlockFigures, ExchangesStandBesideEachOther) {
  const std::string svg = svg_of_block(
      record_of(13, {way("separate operators", 30), way("by DSMEM", 50, {{"cluster", 4}, {"exchange", "on chip"}}),
                     way("through", 55, {{"cluster", 4}, {"exchange", "off chip"}})}));
  EXPECT_THAT(svg, AllOf(HasSubstr("clusters, with DSMEM"), HasSubstr("clusters, through global memory")));
}

TEST(BlockFigures, SplitsAreALineForEachClusterSize) {
  const std::string svg =
      svg_of_block(record_of(20, {way("separate operators", 30), way("a", 50, {{"cluster", 4}, {"split", "tokens"}}),
                                  way("b", 70, {{"cluster", 4}, {"split", "head"}})}));
  EXPECT_THAT(svg, AllOf(HasSubstr("SplitToken, clusters of 4"), HasSubstr("SplitHead, clusters of 4")));
}

}  // namespace
}  // namespace heddle

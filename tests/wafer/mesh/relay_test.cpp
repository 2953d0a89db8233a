// Messages as a whole compared with the event mesh, which moves their words one by one.
#include "wafer/mesh/relay_mesh.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "wafer/mesh/event_mesh.h"
#include "wafer/mesh/load_mesh.h"

namespace heddle::mesh {
namespace {

// Whole cycles: the event mesh has no others.
PlmrDevice relay_device(double alpha, double beta, double ramp) {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  device.alpha_cycles.value = alpha;
  device.beta_cycles.value = beta;
  device.ramp_cycles.value = ramp;
  return device;
}

double executed(const PlmrDevice& device, const std::vector<RelayMessage>& messages) {
  std::vector<int> arrived(messages.size());
  const double cycles = run_relays(device, messages, [&](std::size_t n) { ++arrived[n]; });
  EXPECT_EQ(std::ranges::count(arrived, 1), std::ssize(messages));
  return cycles;
}

double word_by_word(const PlmrDevice& device, WaferMesh cores, const std::vector<RelayMessage>& messages) {
  EventMesh mesh(device, Grid::of_cores(cores));
  const auto at = [&](DeviceCore core) { return core.y * cores.width + core.x; };
  std::vector<TileMove> moves;
  for (const RelayMessage& m : messages) {
    const int values = static_cast<int>(m.bytes / kValueBytes);
    moves.push_back({at(m.from), mesh.allocate("from", 1, values, Buffers::one), at(m.to),
                     mesh.allocate("to", 1, values, Buffers::one)});
  }
  mesh.transfer(std::ssize(moves), Access::send, Arrival::replace,
                [&](std::int64_t n) { return moves[static_cast<std::size_t>(n)]; });
  return static_cast<double>(mesh.cycles());
}

LoadMesh counted_on_links(const PlmrDevice& device, WaferMesh cores, const std::vector<RelayMessage>& messages) {
  LoadMesh mesh(device, cores, 1);
  mesh.transfer_all([&](auto&& move) {
    for (const RelayMessage& m : messages) {
      const Tile tile{.rows = 1, .columns = static_cast<int>(m.bytes / kValueBytes)};
      move(TileMove{m.from.y * cores.width + m.from.x, tile, m.to.y * cores.width + m.to.x, tile});
    }
  });
  return mesh;
}

TEST(MeshRelay, AMessageAloneTakesItsWayAndItsWords) {
  const PlmrDevice device = relay_device(1, 3, 2);
  // Five links of alpha and beta, one ramp, a cycle for each of eight words.
  EXPECT_EQ(executed(device, {{{1, 1}, {4, 3}, 32}}), 5 * (1 + 3) + 2 + 8);
  EXPECT_EQ(word_by_word(device, {5, 5}, {{{1, 1}, {4, 3}, 32}}), 5 * (1 + 3) + 2 + 8);
  EXPECT_EQ(executed(device, {{{2, 2}, {2, 2}, 32}}), 0);
  EXPECT_EQ(executed(device, {}), 0);
}

// A line sends to one core: the last link has all words, one message behind the other.
TEST(MeshRelay, MessagesQueueForALink) {
  for (const double words : {1, 3, 4, 40}) {
    const PlmrDevice device = relay_device(1, 3, 2);
    std::vector<RelayMessage> messages;
    for (int x = 0; x < 6; ++x) messages.push_back({{x, 0}, {6, 0}, 4 * words});
    const double all = executed(device, messages);
    EXPECT_EQ(all, word_by_word(device, {7, 3}, messages)) << words;
    EXPECT_GE(all, 6 * words);
  }
}

// Many messages at once, of one to thirty words. Where heads reach a link in the same cycle, the event mesh takes them in
// the order of its channels: another message may then be the last one, by a few of the messages that share its links.
TEST(MeshRelay, AgreesWithEveryWordOfRandomMessages) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 24; ++round) {
    const WaferMesh cores{3 + below(9), 3 + below(9)};
    const PlmrDevice device = relay_device(1 + below(2), below(9), below(4));
    std::vector<RelayMessage> messages;
    for (int n = 2 + below(60); n > 0; --n)
      messages.push_back({{below(cores.width), below(cores.height)},
                          {below(cores.width), below(cores.height)},
                          4.0 * (1 + below(30))});
    const double ours = executed(device, messages), words = word_by_word(device, cores, messages);
    EXPECT_NEAR(ours, words, 0.1 * words) << "round " << round;
    // Neither is less than the busiest link's words, nor than the longest way. Of so few messages that wait, both together
    // are more than enough.
    const LoadMesh links = counted_on_links(device, cores, messages);
    EXPECT_GE(ours, links.least_transfer_cycles()) << "round " << round;
    EXPECT_GE(words, links.least_transfer_cycles()) << "round " << round;
    EXPECT_LE(ours, links.transfer_cycles()) << "round " << round;
  }
}

// Every hop counts once, whoever sends.
TEST(MeshRelay, CountsHops) {
  EXPECT_EQ(hops_of(std::vector<RelayMessage>{{{0, 0}, {3, 4}, 4}, {{3, 4}, {3, 4}, 4}, {{5, 1}, {2, 1}, 4}}), 10);
}

TEST(MeshRelay, RefusesMessagesWithoutWords) {
  EXPECT_THROW(executed(relay_device(1, 3, 2), {{{0, 0}, {1, 0}, 0}}), InvalidArgument);
}

// The analytical model of a spill is the column that is executed.
TEST(MeshRelay, ASpillTakesWhatTheAnalyticalModelSays) {
  for (const auto& [alpha, beta, ramp] : {std::tuple{1.0, 7.9, 2.0}, {1.0, 3.0, 0.0}, {2.0, 0.0, 1.0}})
    for (const int height : {3, 6, 48, 250})
      for (const int idle : {1, 5, 81})
        for (const double values : {1, 8, 18, 20, 24, 400}) {
          const PlmrDevice device = relay_device(alpha, beta, ramp);
          std::vector<RelayMessage> messages;
          for (int y = 0; y < height; ++y) messages.push_back({{0, y}, {0, height + y % idle}, kValueBytes * values});
          EXPECT_NEAR(run_relays(device, messages, [](std::size_t) {}), spill_cycles(device, {height, height}, values),
                      1e-6 * height)
              << height << " rows to " << idle << ", " << values << " values";
        }
}

}  // namespace
}  // namespace heddle::mesh

#include "cli/trace_parts.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace heddle {
namespace {

using nlohmann::json;

std::string part_name(const std::string& output, const Launch& launch, int rank) {
  return fmt::format("{}.{}.rank{}", output, launch.job_key, rank);
}

json json_of(const GpuEntry& entry) {
  json waits = json::array();
  for (const PeerWaits& one : entry.waits)
    waits.push_back({one.name, one.rank, one.from, one.begin, one.end, one.blocks, one.sum, one.longest});
  return {entry.name, entry.begin, entry.end, entry.blocks, entry.waited, std::move(waits)};
}

GpuEntry gpu_entry(const json& from) {
  GpuEntry entry{.name = from.at(0),
                 .begin = from.at(1),
                 .end = from.at(2),
                 .blocks = from.at(3),
                 .waits = {},
                 .waited = from.at(4)};
  for (const json& one : from.at(5))
    entry.waits.push_back({.name = one.at(0),
                           .rank = one.at(1),
                           .from = one.at(2),
                           .begin = one.at(3),
                           .end = one.at(4),
                           .blocks = one.at(5),
                           .sum = one.at(6),
                           .longest = one.at(7)});
  return entry;
}

json json_of(const TraceTrack& track) {
  json entries = json::array();
  for (const TraceEntry& entry : track.entries())
    entries.push_back({static_cast<int>(entry.kind), entry.name, entry.index, entry.begin, entry.end});
  return {{"rank", track.rank()}, {"entries", std::move(entries)}};
}

void add_track(const json& from, TraceTrack& track) {
  track.set_rank(from.at("rank"));
  for (const json& one : from.at("entries"))
    track.add(static_cast<TraceKind>(one.at(0).get<int>()), one.at(1).get<std::string>(), one.at(2), one.at(3),
              one.at(4));
}

bool appears(const std::string& file, std::chrono::steady_clock::time_point until) {
  while (!std::filesystem::exists(file)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

void leave_trace_part(const std::string& output, const Launch& launch, const Tracer& tracer,
                      const std::vector<GpuTrack>& gpu_tracks) {
  json part = {{"tracks", json::array()}, {"gpus", json::array()}};
  for (const auto& track : tracer.tracks()) part["tracks"].push_back(json_of(*track));
  for (const GpuTrack& track : gpu_tracks) {
    json entries = json::array();
    for (const GpuEntry& entry : track.entries) entries.push_back(json_of(entry));
    part["gpus"].push_back({{"device", track.device}, {"stream", track.stream}, {"entries", std::move(entries)}});
  }
  write_file(part_name(output, launch, launch.rank), part.dump(-1, ' ', true, json::error_handler_t::replace));
}

std::vector<int> add_trace_parts(const std::string& output, const Launch& launch,
                                 std::chrono::milliseconds longest_wait, Tracer& tracer,
                                 std::vector<GpuTrack>& gpu_tracks) {
  constexpr std::size_t kLargestPart = std::size_t{8} << 30;
  constexpr std::uint32_t kStreamsOfRank = 1000;
  const auto until = std::chrono::steady_clock::now() + longest_wait;
  std::vector<int> missing;
  for (int rank = 1; rank < launch.world_size; ++rank) {
    const std::string file = part_name(output, launch, rank);
    if (!appears(file, until)) {
      missing.push_back(rank);
      continue;
    }
    const json part = parse_json(read_file(file, kLargestPart), file);
    std::filesystem::remove(file);
    for (const json& track : part.at("tracks")) add_track(track, tracer.new_track());
    for (const json& track : part.at("gpus")) {
      GpuTrack& added = gpu_tracks.emplace_back();
      added.device = track.at("device");
      added.stream = track.at("stream").get<std::uint32_t>() + static_cast<std::uint32_t>(rank) * kStreamsOfRank;
      for (const json& entry : track.at("entries")) added.entries.push_back(gpu_entry(entry));
    }
  }
  return missing;
}

}  // namespace heddle

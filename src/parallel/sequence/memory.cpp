#include "parallel/sequence/memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {
namespace {

constexpr std::int64_t kAlignment = 256;  // of regions

}  // namespace

std::int64_t SequenceShape::num_tokens() const {
  return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
}

SequenceShape even_sequence(const SequenceShape& of, std::int64_t num_tokens, int ranks) {
  SequenceShape shape = of;
  shape.tokens.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    shape.tokens[rank] = narrow<int>(num_tokens / ranks + (rank < num_tokens % ranks ? 1 : 0), "tokens of a rank");
  return shape;
}

SequenceMemory::SequenceMemory(const SequenceMesh& mesh, const SequenceShape& shape) : mesh_(mesh), shape_(shape) {
  require(static_cast<int>(shape.tokens.size()) == mesh.size(),
          "sequence attention: {} numbers of tokens for {} ranks, expected one for each", shape.tokens.size(),
          mesh.size());
  require(std::ranges::all_of(shape.tokens, [](int tokens) { return tokens >= 0; }),
          "sequence attention: a rank has a negative number of tokens");
  require(shape.batch >= 1 && shape.head_dim >= 1 && shape.num_heads >= 1 && shape.num_heads % mesh.groups() == 0,
          "sequence attention: a batch of {}, {} heads of {}, of which {} groups are to be made", shape.batch,
          shape.num_heads, shape.head_dim, mesh.groups());
  bytes_of_token_ = static_cast<std::int64_t>(size_of(shape.dtype)) * shape.batch * group_heads() * shape.head_dim;
  std::int64_t position = 0;
  for (const int tokens : shape.tokens) {
    first_positions_.push_back(narrow<int>(position, "tokens of the sequence"));
    position += tokens;
  }

  std::int64_t gathered = 0, packed = 0, imported = 0, results = 0;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    gathered = std::max(gathered, bytes_before(rank, mesh_.groups()));
    packed = std::max(packed, own_piece_bytes(rank) * mesh_.groups());
    const schedule::BorderedRing ring = ring_of(rank);
    std::vector<schedule::RingPull> pulls;
    pulls.reserve(static_cast<std::size_t>(ring.steps()));
    for (int step = 0; step < ring.steps(); ++step) pulls.push_back(ring.at(mesh_.place_of(rank), step));
    std::vector<std::int64_t> places(static_cast<std::size_t>(mesh_.torus * mesh_.ring), -1);
    std::int64_t of_rank = 0;
    for (int part = 0; part < mesh_.torus; ++part)
      for (const schedule::RingPull& pull : pulls) {
        if (!pull.crosses) continue;
        places[static_cast<std::size_t>(part * mesh_.ring + pull.piece)] = of_rank;
        of_rank += part_bytes(part, pull.piece);
      }
    ring_pulls_.push_back(std::move(pulls));
    import_places_.push_back(std::move(places));
    imported = std::max(imported, of_rank);
  }
  results = gathered;
  for (int place = 0; place < mesh_.ring; ++place) {
    std::int64_t all = 0;
    for (int part = 0; part < mesh_.torus; ++part) all += part_bytes(part, place);
    ring_buffer_bytes_ = std::max(ring_buffer_bytes_, round_up(all, kAlignment));
  }

  std::int64_t end = round_up(flag(num_flags()), kAlignment);
  const auto region = [&](std::int64_t bytes) {
    const std::int64_t begin = end;
    end += round_up(bytes, kAlignment);
    return begin;
  };
  queries_ = region(gathered);
  keys_values_ = region(2 * gathered);
  packed_queries_ = region(packed);
  packed_keys_values_ = region(2 * packed);
  imports_ = region(imported);
  outputs_ = region(packed);
  symmetric_bytes_ = end;
  private_bytes_ = 2 * ring_buffer_bytes_ + round_up(results, kAlignment);
}

std::int64_t SequenceMemory::bytes_before(int rank, int group) const {
  std::int64_t bytes = 0;
  for (int before = 0; before < group; ++before) bytes += piece_bytes(before, mesh_.place_of(rank));
  return bytes;
}

std::int64_t SequenceMemory::query(int rank, int group) const {
  return queries_ + bytes_before(rank, group);
}

std::int64_t SequenceMemory::key_value(int rank, int group) const {
  return keys_values_ + 2 * bytes_before(rank, group);
}

std::int64_t SequenceMemory::packed_query(int rank, int group) const {
  return group == mesh_.group_of(rank) ? query(rank, group) : packed_queries_ + group * own_piece_bytes(rank);
}

std::int64_t SequenceMemory::packed_key_value(int rank, int group) const {
  return group == mesh_.group_of(rank) ? key_value(rank, group)
                                       : packed_keys_values_ + 2 * group * own_piece_bytes(rank);
}

std::int64_t SequenceMemory::import(int rank, int part, int ring_place) const {
  const std::int64_t place =
      import_places_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(part * mesh_.ring + ring_place)];
  require(place >= 0, "sequence attention: rank {} does not import from place {} of its ring", rank, ring_place);
  return imports_ + place;
}

std::int64_t SequenceMemory::output(int rank, int group) const {
  return outputs_ + group * own_piece_bytes(rank);
}

std::int64_t SequenceMemory::result(int rank, int group) const {
  return 2 * ring_buffer_bytes_ + bytes_before(rank, group);
}

schedule::BorderedRing SequenceMemory::ring_of(int rank) const {
  const int group = mesh_.group_of(rank), first = mesh_.rank(group, 0);
  return {.size = mesh_.ring,
          .first = first,
          .stride = mesh_.ring > 1 ? mesh_.rank(group, 1) - first : 1,
          .ranks_per_machine = mesh_.placement.ranks_per_machine};
}

std::int64_t SequenceMemory::part_bytes(int part, int ring_place) const {
  std::int64_t bytes = 0;
  for (int group = part * mesh_.ulysses; group < (part + 1) * mesh_.ulysses; ++group)
    bytes += 2 * piece_bytes(group, ring_place);
  return bytes;
}

}  // namespace heddle

#include "collectives/cases.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/copy.h"
#include "base/error.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/all_to_all.h"
#include "collectives/broadcast.h"
#include "collectives/collective_memory.h"
#include "collectives/payload.h"
#include "collectives/pipeline.cuh"
#include "collectives/reduce_scatter.h"

namespace heddle {
namespace {

constexpr int kBatch = 20;  // calls of a soak that are enqueued at once, of so many elements at most:
constexpr std::size_t kMostOfSoak = 2000;

constexpr std::size_t kGuard = 64;  // bytes behind an output that must stay as they were

constexpr Collective kEveryCollective[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                           Collective::all_to_all, Collective::broadcast};

std::string text_of(const CollectiveCase& c, const Choice& choice, const Communicator& communicator) {
  return fmt::format("{} {} count {}{}{}{} by {} in {} blocks of {} on rank {} of {}", name_of(c.collective),
                     name_of(c.dtype), c.count, c.place == Place::in ? " in place" : "",
                     c.memory == Memory::symmetric ? " symmetric" : "", c.misalign != 0 ? " misaligned" : "",
                     name_of(choice.algorithm), choice.blocks, choice.threads, communicator.rank(),
                     communicator.size());
}

bool has_pieces_in(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_to_all;
}

void append(Bits& all, const Bits& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// What `rank` begins with: where an input has pieces, one for each rank, every piece is a payload of its own.
Bits piece_of(const CollectiveCase& c, int rank, int piece, std::uint32_t seed) {
  return payload(c.dtype, c.count, rank, seed + 2 * static_cast<std::uint32_t>(piece));
}
Bits input_of(const CollectiveCase& c, int ranks, int rank, std::uint32_t seed) {
  Bits input;
  for (int piece = 0; piece < (has_pieces_in(c.collective) ? ranks : 1); ++piece)
    append(input, piece_of(c, rank, piece, seed));
  return input;
}

// What `rank` must end with.
Bits expected(const CollectiveCase& c, int ranks, int rank, int root, std::uint32_t seed) {
  std::vector<Bits> parts;  // of each rank
  for (int p = 0; p < ranks; ++p) parts.push_back(piece_of(c, p, has_pieces_in(c.collective) ? rank : 0, seed));
  Bits result;
  switch (c.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return sum_in_rank_order(c.dtype, parts);
    case Collective::all_gather:
    case Collective::all_to_all:
      for (const Bits& part : parts) append(result, part);
      return result;
    case Collective::broadcast:
      return parts[static_cast<std::size_t>(root)];
    case Collective::barrier:
      break;
  }
  return result;
}

void call(Communicator& communicator, const CollectiveCase& c, const void* in, void* out, int root, const Lane& lane) {
  switch (c.collective) {
    case Collective::all_reduce:
      return all_reduce(communicator, {in, out, c.count, c.dtype, c.memory}, lane);
    case Collective::reduce_scatter:
      return reduce_scatter(communicator, {in, out, c.count, c.dtype, c.memory}, lane);
    case Collective::all_gather:
      return all_gather(communicator, {in, out, c.count, c.dtype, c.memory}, lane);
    case Collective::all_to_all:
      return all_to_all(communicator, {in, out, c.count, c.dtype, c.memory}, lane);
    case Collective::broadcast:
      return broadcast(communicator, {in, out, c.count, c.dtype, root, c.memory}, lane);
    case Collective::barrier:
      break;
  }
}

bool sums(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter;
}

// Collectives that copy bytes deliver every bit pattern.
std::string difference_of_bytes(const CollectiveCase& c, const Bits& got, const Bits& want) {
  const auto differ = std::mismatch(want.begin(), want.end(), got.begin());
  if (differ.first == want.end()) return {};
  return fmt::format("byte {} of element {} is {:#04x}, expected {:#04x}",
                     static_cast<std::size_t>(differ.first - want.begin()) % size_of(c.dtype),
                     static_cast<std::size_t>(differ.first - want.begin()) / size_of(c.dtype),
                     static_cast<unsigned>(*differ.second), static_cast<unsigned>(*differ.first));
}

std::string difference(const CollectiveCase& c, const Bits& got, const Bits& want) {
  if (!sums(c.collective)) return difference_of_bytes(c, got, want);
  const std::ptrdiff_t at = first_difference(c.dtype, got, want);
  if (at < 0) return {};
  const auto i = static_cast<std::size_t>(at);
  return fmt::format("element {} is {}, expected {}", i, element(got, c.dtype, i), element(want, c.dtype, i));
}

std::size_t bytes_of(const CollectiveCourse& course, std::size_t ranks) {
  return ranks * std::max<std::size_t>(course.largest, 4099) * sizeof(float) + 256;
}

std::vector<Choice> choices_on(const Fabric& fabric, Collective collective) {
  if (!fabric.has(Capability::peer_addresses)) return {{Algorithm::put}};
  std::vector<Choice> all;
  const bool cpu = fabric.device().kind == DeviceKind::cpu;
  for (const Algorithm algorithm : algorithms_of(collective, fabric.device().kind)) {
    if (cpu)
      all.push_back({algorithm});
    else
      for (const Choice& shape : {Choice{algorithm, 1, 128}, Choice{algorithm, 7, 512}, Choice{algorithm, 64, 256},
                                  Choice{algorithm, kMaxBlocks, 512}})
        all.push_back(shape);
  }
  return all;
}

// Small, so that even small cases take several rounds; for `pipelined`, one packet per slot for the largest grid tried.
CommunicatorOptions small_workspace(DeviceKind device, int ranks) {
  const std::size_t scale = device == DeviceKind::cpu ? 1 : 16, blocks = device == DeviceKind::cpu ? 1 : kMaxBlocks;
  const std::size_t slots = blocks * static_cast<std::size_t>(ranks) * ChunkCut::kFewestSlots;
  return {.low_latency_bytes = scale * (32 << 10),
          .two_phase_bytes = scale * (32 << 10),
          .staging_bytes = scale * (2 << 10),
          .pipeline_bytes = std::max(scale * (2 << 10), slots * kPacketBytes),
          .vendor = false};
}

std::uint32_t next(std::uint32_t& state) {
  return (state = state * 1664525u + 1013904223u) >> 16;
}

// A call of the soak, the same on every rank.
struct SoakCall {
  CollectiveCase one;
  Choice choice;
  int root;
  std::uint32_t seed;
};

SoakCall soak_call(std::uint32_t& shared, int ranks, const Fabric& fabric, std::size_t most) {
  SoakCall made{};
  made.one.collective = kEveryCollective[next(shared) % 5];
  made.one.dtype = static_cast<DType>(next(shared) % 3);
  made.one.count = 1 + next(shared) % most / (next(shared) % 4 == 0 ? 1 : 16);
  made.one.memory = next(shared) % 2 == 0 ? Memory::any : Memory::symmetric;
  const std::vector<Choice> choices = choices_on(fabric, made.one.collective);
  made.choice = choices[next(shared) % choices.size()];
  made.root = static_cast<int>(next(shared)) % ranks;
  made.seed = next(shared) | 1;
  return made;
}

// Batches of calls without a host between them, so that nothing but the collectives themselves holds ranks together.
void soak(Communicator& communicator, Stream& stream, const CollectiveCourse& course) {
  const int ranks = communicator.size();
  const std::size_t each = static_cast<std::size_t>(ranks) * kMostOfSoak * sizeof(float);
  std::byte* const in = communicator.fabric().allocate(kBatch * each).data;
  std::byte* const out = communicator.fabric().allocate(kBatch * each).data;
  Bits host(kBatch * each);
  communicator.fabric().meet();
  std::uint32_t shared = course.seed, own = course.seed * 31 + static_cast<std::uint32_t>(communicator.rank());
  for (int done = 0; done < course.soak_calls; done += kBatch) {
    std::vector<SoakCall> calls;
    for (std::size_t i = 0; i < kBatch; ++i) {
      calls.push_back(soak_call(shared, ranks, communicator.fabric(), kMostOfSoak));
      const Bits mine = input_of(calls[i].one, ranks, communicator.rank(), calls[i].seed);
      std::copy(mine.begin(), mine.end(), host.begin() + static_cast<std::ptrdiff_t>(i * each));
    }
    enqueue_copy(stream, in, host.data(), host.size());
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (next(own) % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(next(own) % 300));
      communicator.force(calls[i].choice);
      call(communicator, calls[i].one, in + i * each, out + i * each, calls[i].root, stream);
    }
    communicator.fabric().synchronize(stream);
    enqueue_copy(stream, host.data(), out, host.size());
    communicator.fabric().synchronize(stream);
    for (std::size_t i = 0; i < kBatch; ++i) {
      const Bits want = expected(calls[i].one, ranks, communicator.rank(), calls[i].root, calls[i].seed);
      const auto begin = host.begin() + static_cast<std::ptrdiff_t>(i * each);
      const std::string wrong =
          difference(calls[i].one, Bits(begin, begin + static_cast<std::ptrdiff_t>(want.size())), want);
      if (!wrong.empty())
        throw_error<Failure>("soak, call {}: {}: {}", done + static_cast<int>(i),
                             text_of(calls[i].one, calls[i].choice, communicator), wrong);
    }
  }
}

int run_cases(Communicator& communicator, const Lane& lane, const CollectiveCourse& course, const CaseBuffers& own,
              const CaseBuffers& symmetric) {
  int count = 0;
  std::uint32_t seed = course.seed;
  for (const Collective collective : kEveryCollective)
    for (const CollectiveCase& one : cases_of(collective, course.largest))
      for (const Choice& choice : choices_on(communicator.fabric(), collective)) {
        const std::string wrong =
            run_case(communicator, lane, one, choice, ++seed, one.memory == Memory::any ? own : symmetric);
        if (!wrong.empty()) throw Failure(wrong);
        ++count;
      }
  return count;
}

// That many teams, to which ranks are assigned round-robin.
std::vector<Ranks> dealt(int ranks, int num_teams) {
  std::vector<Ranks> teams(static_cast<std::size_t>(num_teams));
  for (int rank = 0; rank < ranks; ++rank) teams[static_cast<std::size_t>(rank % num_teams)].push_back(rank);
  return teams;
}

// Two teams; teams of two; five beside the others; and all but the last, which then is alone.
std::vector<std::vector<Ranks>> cuts_of(int ranks) {
  std::vector<std::vector<Ranks>> cuts;
  if (ranks >= 4) cuts.push_back(dealt(ranks, 2));
  if (ranks >= 6) cuts.push_back(dealt(ranks, ranks / 2));
  if (ranks >= 7) {
    Ranks five(5), others(static_cast<std::size_t>(ranks - 5));
    std::iota(five.begin(), five.end(), 0);
    std::iota(others.begin(), others.end(), 5);
    cuts.push_back({five, others});
  }
  if (ranks >= 3) {
    Ranks most(static_cast<std::size_t>(ranks - 1));
    std::iota(most.rbegin(), most.rend(), 0);  // in an order of its own
    cuts.push_back({most, {ranks - 1}});
  }
  return cuts;
}

}  // namespace

std::vector<Algorithm> algorithms_of(Collective collective, DeviceKind device) {
  std::vector<Algorithm> all{Algorithm::low_latency, Algorithm::direct};
  const bool cpu = device == DeviceKind::cpu;
  if (collective == Collective::all_reduce) all.push_back(Algorithm::two_phase);
  if (collective == Collective::all_reduce || (cpu && collective == Collective::broadcast))
    all.push_back(Algorithm::pipelined);
  if (cpu) all.push_back(Algorithm::put);
  return all;
}

std::vector<CollectiveCase> cases_of(Collective collective, std::size_t largest) {
  std::vector<CollectiveCase> cases;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, largest}) {
    for (const Place place : {Place::out, Place::in})
      for (const Memory memory : {Memory::any, Memory::symmetric}) {
        // The own piece of a symmetric buffer is aligned only where the pieces are.
        if (collective == Collective::reduce_scatter && place == Place::in && memory == Memory::symmetric &&
            count % 4 != 0)
          continue;
        cases.push_back({collective, DType::float32, count, place, memory});
      }
    cases.push_back({.collective = collective, .dtype = DType::float32, .count = count, .misalign = 1});
  }
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const std::size_t count : {std::size_t{1}, std::size_t{31}, std::size_t{1000}})
      cases.push_back({.collective = collective, .dtype = dtype, .count = count, .misalign = count % 2});
  return cases;
}

CaseBuffers::CaseBuffers(Communicator& communicator, Memory memory, std::size_t largest) {
  const std::size_t bytes = bytes_of({.largest = largest}, static_cast<std::size_t>(communicator.fabric().size()));
  for (int i = 0; i < 2; ++i) {
    if (memory == Memory::any) own_[i] = Buffer(bytes, communicator.fabric().device());
    data_[i] = memory == Memory::any ? own_[i].data() : communicator.fabric().allocate(bytes).data;
  }
}

std::string run_case(Communicator& communicator, const Lane& lane, const CollectiveCase& c, const Choice& choice,
                     std::uint32_t seed, const CaseBuffers& buffers) {
  Stream& stream = lane.stream;
  const int n = communicator.size(), rank = communicator.rank();
  const int root = static_cast<int>(seed) % n;
  const std::size_t element_bytes = size_of(c.dtype);
  const Bits input = input_of(c, n, rank, seed), want = expected(c, n, rank, root, seed);

  std::byte* in = buffers.data(0) + c.misalign * element_bytes;
  std::byte* out = buffers.data(1) + c.misalign * element_bytes;
  const std::size_t own_piece = static_cast<std::size_t>(rank) * c.count * element_bytes;
  if (c.place == Place::in) {
    in = out;
    if (c.collective == Collective::all_gather) in = out + own_piece;
    if (c.collective == Collective::reduce_scatter) {
      in = buffers.data(0) + c.misalign * element_bytes;
      out = in + own_piece;
    }
  }
  const bool guarded = c.place == Place::out;
  const Bits scrub(want.size() + kGuard, std::byte{0xee});  // what is not written shows
  if (guarded) enqueue_copy(stream, out, scrub.data(), scrub.size());
  if (!input.empty()) enqueue_copy(stream, in, input.data(), input.size());
  // Memory that peers write must not be touched once they begin.
  if (c.memory == Memory::symmetric) communicator.fabric().barrier(stream, communicator.team());
  communicator.fabric().synchronize(stream);

  communicator.force(choice);
  call(communicator, c, in, out, root, lane);
  communicator.fabric().synchronize(stream);  // a copy to the host's memory may hold up other ranks while it waits
  Bits got(want.size() + (guarded ? kGuard : 0));
  if (!got.empty()) enqueue_copy(stream, got.data(), out, got.size());
  communicator.fabric().synchronize(stream);

  const Bits behind(got.begin() + static_cast<std::ptrdiff_t>(want.size()), got.end());
  got.resize(want.size());
  const std::string wrong = difference(c, got, want);
  if (!wrong.empty()) return text_of(c, choice, communicator) + ": " + wrong;
  const bool past = std::any_of(behind.begin(), behind.end(), [](std::byte byte) { return byte != std::byte{0xee}; });
  return past ? text_of(c, choice, communicator) + ": writes past its end" : std::string();
}

std::size_t heap_bytes_of(const CollectiveCourse& course, int ranks, DeviceKind device) {
  std::size_t buffers = 2 * bytes_of(course, static_cast<std::size_t>(ranks));
  if (course.soak_calls > 0) buffers += 2 * kBatch * static_cast<std::size_t>(ranks) * kMostOfSoak * sizeof(float);
  buffers += replay_heap_bytes(ranks);
  constexpr std::size_t kOfGraphs = std::size_t{1} << 20;
  const std::size_t communicators = cuts_of(ranks).empty() ? 1 : 2;  // parts of the world give theirs back
  return buffers + kOfGraphs +
         communicators * Communicator::heap_bytes(ranks, Device{device}, small_workspace(device, ranks));
}

void run_course(Fabric& fabric, Stream& stream, const CollectiveCourse& course,
                FunctionRef<void(const std::string&)> passed) {
  const DeviceKind device = fabric.device().kind;
  const Lane lane = course.sms > 0 ? Lane(stream, course.sms) : Lane(stream);
  Ranks world(static_cast<std::size_t>(fabric.size()));
  std::iota(world.begin(), world.end(), 0);
  Communicator communicator(fabric, world, stream, small_workspace(device, fabric.size()));
  const CaseBuffers own(communicator, Memory::any, course.largest);
  const CaseBuffers symmetric(communicator, Memory::symmetric, course.largest);
  fabric.meet();
  passed(fmt::format("{} cases", run_cases(communicator, lane, course, own, symmetric)));

  for (const std::vector<Ranks>& cut : cuts_of(fabric.size())) {
    const auto mine = std::find_if(cut.begin(), cut.end(), [&](const Ranks& team) {
      return std::find(team.begin(), team.end(), fabric.rank()) != team.end();
    });
    Communicator part(fabric, *mine, stream, small_workspace(device, fabric.size()));
    const CollectiveCourse small{.largest = 100, .seed = course.seed + 1};
    passed(fmt::format("{} cases in a team of {}, beside another", run_cases(part, lane, small, own, symmetric),
                       cut.front().size()));
    fabric.meet();
  }
  if constexpr (kHaveCuda)
    if (device == DeviceKind::cuda) {
      if (const std::string wrong = run_graphs(communicator, stream, course.seed); !wrong.empty()) throw Failure(wrong);
      passed("graphs replayed");
    }
  if (course.replays > 0) {
    if (const std::string wrong = run_replays(communicator, stream, course.replays); !wrong.empty())
      throw Failure(wrong);
    passed(fmt::format("{} runs of every collective, call by call, replayed, and replayed with delays inside",
                       course.replays));
  }
  if (course.soak_calls > 0) {
    soak(communicator, stream, course);
    passed(fmt::format("a soak of {} calls", course.soak_calls));
  }
  fabric.barrier(stream);
  fabric.synchronize(stream);
}

}  // namespace heddle

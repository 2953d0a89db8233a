// The cases of the collectives, on memory of the fabric's device: for the tests here, on threads of the CPU,
// and for heddle_collective_cases, which runs on GPUs and on machines without GoogleTest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/function_ref.h"
#include "base/lane.h"
#include "collectives/communicator.h"

namespace heddle {

enum class Place : std::uint8_t { out, in };  // whether output is input

struct CollectiveCase {
  Collective collective;
  DType dtype;
  std::size_t count;
  Place place = Place::out;
  Memory memory = Memory::any;
  std::size_t misalign = 0;  // elements that a buffer begins past an aligned address
};

// Those that a collective has where there are peer addresses.
std::vector<Algorithm> algorithms_of(Collective collective, DeviceKind device);

// Nothing, packets that are not full, fewer packets than ranks, odd numbers of elements, several rounds of a staging of
// 2 KiB a rank, and `largest`.
std::vector<CollectiveCase> cases_of(Collective collective, std::size_t largest);

// Two buffers of one rank, in memory of its own or in the symmetric heap (collective), for cases of up to `largest`.
class CaseBuffers {
 public:
  CaseBuffers(Communicator& communicator, Memory memory, std::size_t largest);

  std::byte* data(int which) const { return data_[which]; }

 private:
  Buffer own_[2];
  std::byte* data_[2];
};

// Runs one case and compares, bit for bit, with the oracle: sums in rank order, and nothing written behind an output.
// What is wrong, or nothing.
std::string run_case(Communicator& communicator, const Lane& lane, const CollectiveCase& one, const Choice& choice,
                     std::uint32_t seed, const CaseBuffers& buffers);

struct CollectiveCourse {
  std::size_t largest = 4099;
  int soak_calls = 0;
  int replays = 0;  // of a program of every collective (run_replays)
  std::uint32_t seed = 1;
  int sms = 0;  // of the lane on which all cases run; 0: the whole device
};

// Bytes of heap that a course takes.
std::size_t heap_bytes_of(const CollectiveCourse& course, int ranks, DeviceKind device);

// All cases by every algorithm, on the world and on parts of it; calls in graphs, where the device has them; a soak of
// mixed calls that feed nobody and wait for nobody but each other, while ranks are late at random. Throws Failure with
// what is wrong; tells `passed` what was right.
void run_course(Fabric& fabric, Stream& stream, const CollectiveCourse& course,
                FunctionRef<void(const std::string&)> passed);

// One call of each collective in a graph, captured once, replayed with other inputs. Defined in builds with CUDA.
std::string run_graphs(Communicator& communicator, Stream& stream, std::uint32_t seed);

// Every collective by every algorithm that GPUs have, so many times call by call; captured once and replayed as often;
// and so with random delays inside the collectives. Each run's outputs must be that run's, and the bits of all three
// the same. What is wrong, or nothing. Needs peer addresses.
std::string run_replays(Communicator& communicator, Stream& stream, int times);
std::size_t replay_heap_bytes(int ranks);

}  // namespace heddle

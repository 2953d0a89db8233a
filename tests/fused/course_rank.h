// What the parts of the course share: one rank of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>

#include "fabric/fabric.h"
#include "fused/cases.h"
#include "fused/numbers.h"

namespace heddle {

struct CourseRank {
  Fabric& fabric;
  Stream& stream;
  const FusedCourse& course;
  Draws own{static_cast<std::uint32_t>(fabric.rank()) + 99};

  void be_late() {
    if (course.late_nanoseconds == 0 || own.between(0, 3) != 0) return;
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(own.between(0, static_cast<std::int64_t>(course.late_nanoseconds))));
  }
};

inline Ranks world_of(const Fabric& fabric) {
  Ranks all(static_cast<std::size_t>(fabric.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// With value_dim: latent attention, whose keys are its values, too.
struct CourseHeads {
  int heads, kv_heads;
  DType dtype;
  int value_dim = 0;
};
void decode_course(CourseRank& rank, const CourseHeads& form);
void attend_course(CourseRank& rank, const CourseHeads& form);

void norm_course(CourseRank& rank);
std::size_t heap_bytes_of_norm_course(int ranks);

// The same of its kernels.
class DeviceRoom;
void norm_gpu_course(CourseRank& rank, DeviceRoom& room);
std::size_t heap_bytes_of_norm_gpu_course(int ranks);

}  // namespace heddle

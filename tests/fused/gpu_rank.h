// What the parts of the GPU course share: a rank, its memory and its lane.
#pragma once

#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <vector>

#include "base/lane.h"
#include "fused/course_rank.h"
#include "fused/device_room.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/numbers.h"
#include "fused/shards.h"

namespace heddle {

// What is left to do for a call when its stream is idle.
using Check = std::function<void()>;

// A rank, its memory and its lane.
struct GpuRank {
  CourseRank& rank;
  DeviceRoom& room;
  Stream& transfers;
  Draws shared;  // the same on all ranks

  Workspace workspace;

  Lane lane() const { return {rank.stream, rank.fabric.device_share().sms, workspace}; }
  int me() const { return rank.fabric.rank(); }
  int size() const { return rank.fabric.size(); }

  // Cuts `total` units at random; some ranks may get nothing.
  Shards drawn_shards(std::int64_t total, std::int64_t unit) {
    std::vector<std::int64_t> cuts{0, total / unit};
    for (int i = 1; i < size(); ++i) cuts.push_back(shared.between(0, total / unit));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::int64_t> counts;
    for (std::size_t i = 1; i < cuts.size(); ++i) counts.push_back((cuts[i] - cuts[i - 1]) * unit);
    return Shards::of(counts);
  }

  // `prepare` uploads a call's operands and returns what enqueues it and what checks it. Calls follow each other without
  // a barrier, late at random: so many in all, and so many before their results are looked at, at most.
  struct Call {
    std::function<void()> enqueue;
    Check check;
  };
  void run(const std::function<Call(int)>& prepare, int most_calls = INT_MAX, int most_in_flight = INT_MAX) {
    const int in_all = std::min(most_calls, rank.course.calls),
              in_flight = std::min(most_in_flight, rank.course.calls_in_flight);
    for (int number = 0; number < in_all;) {
      std::vector<Call> calls;
      room.clear();
      for (; number < in_all && std::ssize(calls) < in_flight; ++number) calls.push_back(prepare(number));
      rank.fabric.meet();
      for (const Call& call : calls) {
        rank.be_late();
        call.enqueue();
      }
      rank.fabric.synchronize(rank.stream);
      rank.fabric.synchronize(transfers);
      rank.fabric.meet();
      for (const Call& call : calls) call.check();
    }
  }

  // Compares some thousands of elements of y with rows [first_row, ...) of A W^T.
  void check(const Tensor& y, const std::vector<float>& a, const std::vector<float>& w, const std::vector<float>& bias,
             std::int64_t k, std::int64_t first_row, const char* what, int number) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(y.rows * y.columns) * size_of(y.dtype));
    if (bytes.empty()) return;
    enqueue_copy(rank.stream, bytes.data(), y.data, bytes.size());
    rank.stream.synchronize();
    const std::vector<float> got = decoded(bytes, y.dtype);
    constexpr std::size_t kMostLooks = 3000;
    for (std::size_t i = 0; i < got.size(); i += got.size() / kMostLooks + 1) {
      const auto at = static_cast<std::int64_t>(i);
      Dot want = dot_of(a, w, k, first_row + at / y.columns, at % y.columns);
      want.value += bias.empty() ? 0.0 : static_cast<double>(bias[i % static_cast<std::size_t>(y.columns)]);
      const double rounding = y.dtype == DType::float32 ? 0 : y.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
      const double bound =
          static_cast<double>(k + 8) * 0x1p-23 * (want.magnitude + 4) + rounding * (std::abs(want.value) + 0x1p-14);
      if (!(std::abs(static_cast<double>(got[i]) - want.value) <= bound))
        throw_error<Failure>("{}: call {} on rank {}: element [{}, {}] of [{}, {}], k {}, is {}, expected {} within {}",
                             what, number, me(), at / y.columns, at % y.columns, y.rows, y.columns, k, got[i],
                             want.value, bound);
    }
  }
};

// Heads and dtype of a course of flash_decode.
struct GpuDecodeForm {
  int heads, kv_heads, head_dim;
  DType dtype;
  int value_dim = 0;  // of latent attention, whose keys are its values, too
};
FlashDecodeLimits gpu_decode_limits(const GpuDecodeForm& form);
void decode_on_gpus(GpuRank& gpu, const GpuDecodeForm& form);

}  // namespace heddle

#include "fused/all_reduce_norm/all_reduce_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/trace.h"
#include "device/kernel_end.h"
#include "fabric/symmetric_heap.h"
#include "fused/all_reduce_norm/all_reduce_norm_programs.cuh"
#include "fused/all_reduce_norm/all_reduce_norm_sm90.h"
#include "kernels/rows/rmsnorm_cpu.h"

namespace heddle {
namespace {

constexpr const char* kNormName = "all_reduce_norm";

// Cut-offs on GPUs are those of all_reduce on two and four H200s (docs/notes/collectives.md); on the CPU, what stays in
// the L2 cache.
AllReduceNormOptions completed(AllReduceNormOptions options, Device device) {
  const bool cpu = device.kind == DeviceKind::cpu;
  constexpr std::size_t kKiB = 1024;
  const auto fill = [](std::size_t& size, std::size_t otherwise) {
    size = round_up(size == 0 ? otherwise : size, kPacketBytes);
  };
  fill(options.one_shot_bytes, cpu ? 32 * kKiB : 256 * kKiB);
  fill(options.two_phase_bytes, cpu ? 64 * kKiB : 4096 * kKiB);
  fill(options.slots_bytes, cpu ? 256 * kKiB : 8192 * kKiB);
  return options;
}

// What lies in the symmetric heap. Sizes depend on the world, not on the team: ranks outside the team allocate as much.
template <class Allocate>
AllReduceNormMemory memory_parts(const AllReduceNormOptions& options, std::size_t world, Allocate allocate,
                                 std::byte** rows = nullptr) {
  AllReduceNormMemory memory;
  const auto flags = [&] {
    return reinterpret_cast<std::uint64_t*>(allocate(AllReduceNormMemory::kMostBlocks * world * sizeof(std::uint64_t)));
  };
  // Two-phase: shares and rows of an even part, and one row more; y is as wide as x at most.
  memory.buffer_bytes = std::max(world * options.one_shot_bytes, 4 * options.two_phase_bytes);
  memory.inbox = allocate(kInboxBuffers * memory.buffer_bytes);
  memory.blocks =
      reinterpret_cast<NormBlockState*>(allocate(AllReduceNormMemory::kMostBlocks * sizeof(NormBlockState)));
  memory.slots_bytes = world * round_up<std::size_t>(options.slots_bytes, 32);
  memory.slots = allocate(memory.slots_bytes);
  memory.shares_come = flags();
  memory.rows_come = flags();
  memory.rows_taken = flags();
  std::byte* const of_rows = allocate(options.row_bytes);
  if (rows != nullptr) *rows = of_rows;
  return memory;
}

template <class Parts>
std::size_t bytes_of_parts(const Parts& parts) {
  std::size_t bytes = 0;
  parts([&bytes](std::size_t size) -> std::byte* {
    bytes += round_up(size, SymmetricHeap::kAlignment);
    return nullptr;
  });
  return bytes;
}

void require_rows(const Tensor& tensor, const Tensor& x, const char* name) {
  require(tensor.rows == x.rows && tensor.columns == x.columns, "{}: {} is [{}, {}], x [{}, {}]", kNormName, name,
          tensor.rows, tensor.columns, x.rows, x.columns);
  require(tensor.row_stride == tensor.columns, "{}: rows of {} lie {} elements apart and have {}", kNormName, name,
          tensor.row_stride, tensor.columns);
  require(tensor.data != nullptr || x.rows == 0, "{}: {} has no data", kNormName, name);
}

using NamedRegime = std::pair<AllReduceNormRegime, std::string_view>;
constexpr std::array<NamedRegime, 3> kRegimes{{{AllReduceNormRegime::one_shot, "one_shot"},
                                               {AllReduceNormRegime::two_phase, "two_phase"},
                                               {AllReduceNormRegime::pipelined, "pipelined"}}};

}  // namespace

std::string_view name_of(AllReduceNormRegime regime) {
  return kRegimes[static_cast<std::size_t>(regime)].second;
}

std::optional<AllReduceNormRegime> all_reduce_norm_regime_named(std::string_view name) {
  for (const auto& [regime, text] : kRegimes)
    if (text == name) return regime;
  return std::nullopt;
}

void normalize_row_on_cpu(const float* z, const float* weight, std::int64_t hidden, float eps, void* y, DType dtype) {
  std::vector<float> row(dtype == DType::float16 ? static_cast<std::size_t>(hidden) : 0);
  const bool widens = dtype == DType::float16;  // which rmsnorm() does not write on the CPU
  rmsnorm_tokens_cpu({.x = {const_cast<float*>(z), 1, hidden, hidden, DType::float32},
                      .weight = weight,
                      .residual = {},
                      .y = {widens ? row.data() : y, 1, hidden, hidden, widens ? DType::float32 : dtype},
                      .eps = eps},
                     0, 1);
  for (std::size_t i = 0; i < row.size(); ++i) static_cast<float16*>(y)[i] = to_float16(row[i]);
}

std::size_t AllReduceNorm::heap_bytes(int world_size, Device device, const AllReduceNormOptions& options) {
  return bytes_of_parts([&](const auto& allocate) {
    memory_parts(completed(options, device), static_cast<std::size_t>(world_size), allocate);
  });
}

AllReduceNorm::AllReduceNorm(Fabric& fabric, Ranks team, Stream& stream, const AllReduceNormOptions& options)
    : fabric_(&fabric), options_(completed(options, fabric.device())) {
  require_capability(fabric, Capability::peer_addresses, kNormName);
  require_team(team, fabric.size(), fabric.rank(), kNormName);
  require(stream.device() == fabric.device(), "{}: a stream on {}, but the fabric's memory is on {}", kNormName,
          name_of(stream.device()), name_of(fabric.device()));
  const auto lay_out = [&](const auto& allocate) {
    return memory_parts(options_, static_cast<std::size_t>(fabric.size()), allocate, &rows_);
  };
  heap_memory_ = SymmetricMemory(fabric, bytes_of_parts(lay_out));
  memory_ = lay_out([next = heap_memory_.data()](std::size_t bytes) mutable {
    return std::exchange(next, next + round_up(bytes, SymmetricHeap::kAlignment));
  });
  peers_ = fabric.peers(team);
  // No rank may push before every inbox is empty.
  const std::size_t inbox_bytes = kInboxBuffers * memory_.buffer_bytes;
  if (fabric.device().kind == DeviceKind::cpu)
    stream.enqueue([inbox = memory_.inbox, inbox_bytes](ThreadPool&) { std::memset(inbox, 0xff, inbox_bytes); });
  else if constexpr (kHaveCuda)
    fill_norm_inbox_sm90(memory_.inbox, inbox_bytes, stream);
  fabric.barrier(stream);
  fabric.synchronize(stream);
}

std::string AllReduceNorm::why_not(std::int64_t hidden, DType x, DType y) const {
  const auto row = [&](DType dtype) { return static_cast<std::size_t>(hidden) * size_of(dtype); };
  if (!NormChunks::fits(size(), row(x), row(y), memory_.slots_bytes))
    return fmt::format("rows of {} elements of {} and {} do not fit {} times into slots of {} bytes", hidden,
                       name_of(x), name_of(y), NormChunks::kFewestSlots, memory_.slots_bytes);
  if (fabric_->device().kind == DeviceKind::cpu) return {};
  if (!takes_rows_of(hidden, DeviceKind::cuda))
    return fmt::format("rows of {} elements: on a GPU a multiple of 8", hidden);
  if (x != DType::float32 && x != y)
    return fmt::format("{} summed and {} normalised: on a GPU 16-bit rows keep their dtype", name_of(x), name_of(y));
  return {};
}

AllReduceNormRegime AllReduceNorm::regime(std::int64_t num_tokens, std::int64_t hidden, DType x) const {
  const auto bytes_of = [&](std::size_t element) {
    return packets_of(static_cast<std::size_t>(hidden) * element) * kPacketBytes;
  };
  const auto tokens = static_cast<std::size_t>(num_tokens), ranks = static_cast<std::size_t>(size());
  const std::size_t bytes = tokens * static_cast<std::size_t>(hidden) * size_of(x);
  const bool has_one_shot = tokens * ranks * bytes_of(size_of(x)) <= memory_.buffer_bytes;
  // As if y were float32, so that the regime, and with it who has which residual, does not depend on y.
  const bool has_two_phase =
      tokens >= ranks &&
      round_up(tokens, ranks) * (bytes_of(size_of(x)) + bytes_of(sizeof(float))) <= memory_.buffer_bytes;
  const AllReduceNormRegime wanted = forced_                             ? *forced_
                                     : bytes <= options_.one_shot_bytes  ? AllReduceNormRegime::one_shot
                                     : bytes <= options_.two_phase_bytes ? AllReduceNormRegime::two_phase
                                                                         : AllReduceNormRegime::pipelined;
  if (wanted == AllReduceNormRegime::one_shot && has_one_shot) return wanted;
  if (wanted != AllReduceNormRegime::pipelined && has_two_phase) return AllReduceNormRegime::two_phase;
  return AllReduceNormRegime::pipelined;
}

bool AllReduceNorm::in_row_memory(const Tensor& tensor) const {
  const auto* const first = static_cast<const std::byte*>(tensor.data);
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.rows) * static_cast<std::size_t>(tensor.row_stride) * size_of(tensor.dtype);
  return rows_ != nullptr && !std::less<>{}(first, rows_) && bytes <= options_.row_bytes &&
         !std::less<>{}(rows_ + options_.row_bytes, first + bytes);
}

bool AllReduceNorm::is_direct(const AllReduceNormParams& params, AllReduceNormRegime regime) const {
  if (!params.symmetric || regime != AllReduceNormRegime::pipelined) return false;
  for (const Tensor& tensor : {params.x, params.y})
    require(
        fabric_->offset_of(tensor.data, static_cast<std::size_t>(tensor.rows * tensor.columns) * size_of(tensor.dtype))
            .has_value(),
        "{}: x and y are not in symmetric memory", kNormName);
  if constexpr (kHaveCuda)
    if (fabric_->device().kind == DeviceKind::cuda)
      return takes_direct_norm_sm90(params.x.columns, params.x.dtype, params.y.dtype, size());
  return true;
}

// Through slots, 64 blocks hide the norm of long calls behind the links (docs/notes/token_weave.md), and more of them would
// have slots of single rows. Direct calls have no slots and take what there is. No block is without a row of its own, as it
// would only meet others; small calls have a block for each row.
int AllReduceNorm::blocks_for(const NormForm& form, std::int64_t num_tokens, int num_sms, const Lane& lane) const {
  if (fabric_->device().kind == DeviceKind::cpu) return 1;
  constexpr int kPipelinedBlocks = 64;
  // Blocks of ranks that share a GPU wait for each other: all of them must find room.
  const int most = std::min({num_sms > 0 ? num_sms : lane.num_sms, lane.num_sms, fabric_->device_share().sms,
                             AllReduceNormMemory::kMostBlocks});
  if (form.regime == AllReduceNormRegime::pipelined && !form.direct)
    return num_sms > 0 ? most : std::min(most, kPipelinedBlocks);
  const bool has_all_rows = form.regime == AllReduceNormRegime::one_shot;
  return static_cast<int>(std::min<std::int64_t>(most, has_all_rows ? num_tokens : rows(num_tokens).largest()));
}

void AllReduceNorm::operator()(const AllReduceNormParams& params, const Lane& lane) {
  const Tensor& x = params.x;
  require_rows(x, x, "x");
  require_rows(params.residual, x, "residual");
  require_rows(params.y, x, "y");
  require(params.residual.dtype == DType::float32, "{}: the residual is {}, expected float32", kNormName,
          name_of(params.residual.dtype));
  require(params.weight != nullptr || x.rows == 0, "{}: the weight has no data", kNormName);
  require(std::isfinite(params.eps) && params.eps >= 0, "{}: eps is {}, expected a finite number >= 0", kNormName,
          params.eps);
  require(params.num_sms >= 0 && params.num_sms <= AllReduceNormMemory::kMostBlocks, "{}: {} SMs, expected 1 to {}",
          kNormName, params.num_sms, AllReduceNormMemory::kMostBlocks);
  const std::string reason = why_not(x.columns, x.dtype, params.y.dtype);
  require(reason.empty(), "{}: {}", kNormName, reason);
  if (x.rows == 0 || lane.dry_run != nullptr) return;
  const Span span(lane.stream, kNormName);
  const AllReduceNormRegime taken = regime(x.rows, x.columns, x.dtype);
  NormForm form{taken, is_direct(params, taken), 0};
  form.blocks = blocks_for(form, x.rows, params.num_sms, lane);
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda)
      return all_reduce_norm_sm90(params, rows(x.rows), peers_, memory_, {form, fabric_->device_share().ranks == 1},
                                  lane);
  }
  with_element(x.dtype, [&]<class X>() {
    with_element(params.y.dtype, [&]<class Y>() {
      with_norm_program<X, Y>(params, rows(x.rows), form, memory_.slots_bytes, [&](const auto& program) {
        lane.stream.enqueue([this, program](ThreadPool&) {
          program(HostThread{}, peers_, memory_);
          end_as_a_kernel();
        });
      });
    });
  });
}

}  // namespace heddle

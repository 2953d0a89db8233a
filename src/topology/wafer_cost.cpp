#include "topology/wafer_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr double kValueBytes = 2;  // fp16

void check_mesh(const PlmrDevice& device, WaferMesh mesh) {
  if (mesh.width < 3 || mesh.height < 3)
    throw_error<InputError>("a mesh of {} x {} cores; each side needs 3 or more", mesh.width, mesh.height);
  const int least = std::min(mesh.width, mesh.height), most = std::max(mesh.width, mesh.height);
  const double least_side = std::min(device.mesh_width.value, device.mesh_height.value);
  const double most_side = std::max(device.mesh_width.value, device.mesh_height.value);
  if (least > least_side || most > most_side)
    throw_error<InputError>("a mesh of {} x {} cores does not lie in the {} x {} of {}", mesh.width, mesh.height,
                            device.mesh_width.value, device.mesh_height.value, device.name);
}

void check_budgets(const PlmrDevice& device, std::string_view phase, const WaferCost& cost) {
  if (cost.memory_bytes > device.sram_bytes.value)
    throw_error<InputError>("{}: {:.0f} bytes a core, but a core of {} has {:.0f}", phase, cost.memory_bytes,
                            device.name, device.sram_bytes.value);
  if (cost.routes > device.free_routes.value)
    throw_error<InputError>("{}: {} routes a core, but a core of {} has {:.0f} free", phase, cost.routes, device.name,
                            device.free_routes.value);
}

void check_model(const WaferModel& model) {
  require(model.num_layers > 0 && model.hidden > 0 && model.intermediate > 0 && model.num_heads > 0 &&
              model.num_kv_heads > 0 && model.head_dim > 0,
          "a model's sizes must be positive");
}

double tile(std::int64_t size, std::int64_t cores) {
  const std::int64_t rounded_up = (size - 1) / cores + 1;
  return static_cast<double>(rounded_up);
}

std::string_view name_of(WaferGemm method) {
  switch (method) {
    case WaferGemm::mesh_gemm:
      return "MeshGEMM";
    case WaferGemm::gemm_t:
      return "GEMM-T";
    case WaferGemm::summa:
      return "SUMMA";
    case WaferGemm::cannon:
      return "Cannon";
    case WaferGemm::all_gather:
      return "all-gather GEMM";
  }
  throw_error<InvalidArgument>("no such GEMM");
}

// What a step must wait for the longest way, `hops`, beside the words themselves.
double wait_cycles(const PlmrDevice& device, WaferSync sync, double hops) {
  const double way = hops * device.alpha_cycles.value + device.ramp_cycles.value;
  switch (sync) {
    case WaferSync::dataflow:
      return 0;
    case WaferSync::rendezvous:
      return way / 2;
    case WaferSync::barrier:
      return way;
  }
  throw_error<InvalidArgument>("no such synchronisation");
}

// gemm_cost without its checks of budgets.
WaferCost gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferGemm method, WaferSync sync) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  const std::int64_t side = std::lcm(std::int64_t{mesh.width}, std::int64_t{mesh.height});
  const double p = static_cast<double>(side), columns = p / mesh.width, rows = p / mesh.height;
  const double m = tile(size.m, side), k = tile(size.k, side), n = tile(size.n, side);

  const double alpha = device.alpha_cycles.value, beta = device.beta_cycles.value, ramp = device.ramp_cycles.value;
  const double step = (rows * columns * k + rows + columns) * device.call_cycles.value +
                      rows * columns * k * m * n * device.mac_cycles.value;
  const auto link_cycles = [&](double values) { return values * kValueBytes / device.link_bytes_per_cycle.value; };
  // In a step each of a core's rows of tiles of A passes on one tile; of B each column does, of C each row.
  const double a = rows * link_cycles(m * k), b = columns * link_cycles(k * n), c = rows * link_cycles(m * n);
  const double words = std::max(a, b), two_hops = 2 * alpha + ramp, wait = wait_cycles(device, sync, p);

  WaferCost cost;
  const double a_bytes = rows * columns * m * k * kValueBytes, b_bytes = rows * columns * k * n * kValueBytes;
  const double c_bytes = rows * columns * m * n * kValueBytes;
  cost.memory_bytes = 2 * (a_bytes + b_bytes) + c_bytes;
  const auto add_steps = [&](double whole_step) {
    cost.breakdown = {{"compute", p * step}, {"communication", p * (whole_step - step)}};
  };
  switch (method) {
    case WaferGemm::mesh_gemm:
      add_steps(std::max(step, words + two_hops));
      cost.breakdown.push_back({"alignment", p / 2 * (a + two_hops)});
      cost.routes = 6;
      break;
    case WaferGemm::gemm_t:
      add_steps(std::max({step, b + two_hops, c + beta + ramp, c + wait}));
      cost.breakdown.push_back({"skew", p * alpha});
      cost.routes = 5;  // three that shift B, two of the chain
      break;
    case WaferGemm::cannon:
      add_steps(std::max({step, words + two_hops, words + wait}));
      if (sync == WaferSync::dataflow) cost.breakdown.push_back({"skew", p * alpha});
      cost.breakdown.push_back({"alignment", p / 2 * (a + two_hops)});
      cost.routes = 6;
      break;
    case WaferGemm::summa:
      if (sync == WaferSync::barrier)
        add_steps(step + words + wait);
      else
        add_steps(std::max(step + words + ramp + beta, words + wait));
      if (sync == WaferSync::dataflow) cost.breakdown.push_back({"skew", 2 * p * alpha});
      cost.routes = 4;
      break;
    case WaferGemm::all_gather:
      cost.breakdown = {{"compute", p * step}, {"communication", (p - 1) * (words + alpha + beta)}};
      cost.memory_bytes = mesh.width * rows * m * k * kValueBytes * columns +
                          mesh.height * columns * k * n * kValueBytes * rows + c_bytes;
      cost.routes = 4;
      break;
  }
  return cost;
}

// The number of members a group needs so that `phases` phases reduce a line to one core.
int k_tree_fan(int line, int phases) {
  const auto reaches = [&](int fan) {
    double power = 1;
    for (int phase = 0; phase < phases && power < line; ++phase) power *= fan;
    return power >= line;
  };
  int fan = 2;
  while (!reaches(fan)) ++fan;
  return fan;
}

struct AllReduceCycles {
  double hops = 0, stages = 0, words = 0, waits = 0;
  double sum() const { return hops + stages + words + waits; }
};

std::vector<WaferCost::Part> parts_of(const AllReduceCycles& cycles) {
  std::vector<WaferCost::Part> parts{{"hops", cycles.hops}, {"routing stages", cycles.stages}, {"words", cycles.words}};
  if (cycles.waits > 0) parts.push_back({"waits", cycles.waits});
  return parts;
}

AllReduceCycles all_reduce(const PlmrDevice& device, int line, double n, const AllReduceOptions& options) {
  require(line >= 2, "an all-reduce among {} cores", line);
  require(options.phases >= 1 && options.phases <= 32, "a K-tree of {} phases", options.phases);
  const double alpha = device.alpha_cycles.value, beta = device.beta_cycles.value, p = line;
  const double value_cycles =
      2 * kValueBytes / device.link_bytes_per_cycle.value;  // 1 on WSE: 32-bit adds, as measured
  switch (options.method) {
    case WaferAllReduce::k_tree: {
      AllReduceCycles cycles{.hops = alpha * p / 2, .words = 1.5 * n * value_cycles};
      const int fan = k_tree_fan(line, options.phases);
      double distance = 1;
      for (int phase = 0, members = line; phase < options.phases && members > 1; ++phase) {
        const double stages = std::min(fan, members) / 2.0;
        cycles.hops += alpha * stages * distance;
        cycles.stages += beta * stages;
        cycles.waits += stages * wait_cycles(device, options.sync, distance);
        distance *= fan;
        members = (members - 1) / fan + 1;
      }
      return cycles;
    }
    case WaferAllReduce::pipeline:
      return {.hops = 2 * p * alpha,
              .stages = p * beta,
              .words = n * value_cycles,
              .waits = p * wait_cycles(device, options.sync, 1)};
    case WaferAllReduce::ring: {
      const double chunk = std::ceil(n * kValueBytes / device.link_bytes_per_cycle.value / p);
      const double steps = 2 * (p - 1);
      return {.hops = steps * 2 * alpha,
              .stages = steps * beta,
              .words = steps * chunk,
              .waits = steps * wait_cycles(device, options.sync, 2)};
    }
  }
  throw_error<InvalidArgument>("no such all-reduce");
}

int routes_an_axis(const AllReduceOptions& options) {
  switch (options.method) {
    case WaferAllReduce::k_tree:
      return 4 * options.phases + 2;
    case WaferAllReduce::pipeline:
      return 4;
    case WaferAllReduce::ring:
      return 3;
  }
  throw_error<InvalidArgument>("no such all-reduce");
}

constexpr int kLaunchRoutes = 1;

double gemv_cycles(const PlmrDevice& device, double k, double n) {
  return k * (device.vector_slice_cycles.value + n * device.mac_cycles.value);
}

}  // namespace

double WaferCost::cycles() const {
  return std::accumulate(breakdown.begin(), breakdown.end(), 0.0,
                         [](double sum, const Part& part) { return sum + part.cycles; });
}

double wafer_weight_bytes(const WaferModel& model) {
  const double d = model.hidden, heads = static_cast<double>(model.num_heads) * model.head_dim;
  const double kv_heads = static_cast<double>(model.num_kv_heads) * model.head_dim;
  return kValueBytes * model.num_layers * (2 * d * heads + 2 * d * kv_heads + 3 * d * model.intermediate);
}

double wafer_kv_bytes(const WaferModel& model) {
  return kValueBytes * model.num_layers * 2 * (static_cast<double>(model.num_kv_heads) * model.head_dim);
}

WaferCost gemm_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferGemm method, WaferSync sync) {
  check_mesh(device, mesh);
  WaferCost cost = gemm(device, size, mesh, method, sync);
  check_budgets(device, name_of(method), cost);
  return cost;
}

WaferCost all_reduce_cost(const PlmrDevice& device, int line, std::int64_t n, const AllReduceOptions& options) {
  require(n > 0, "an all-reduce of {} values", n);
  const AllReduceCycles cycles = all_reduce(device, line, static_cast<double>(n), options);
  WaferCost cost{.breakdown = parts_of(cycles),
                 .memory_bytes = 2 * kValueBytes * static_cast<double>(n),
                 .routes = routes_an_axis(options) + kLaunchRoutes};
  check_budgets(device, "all-reduce", cost);
  return cost;
}

WaferCost gemv_cost(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh mesh,
                    const AllReduceOptions& options) {
  require(k > 0 && n > 0, "GEMV of {} x {}", k, n);
  check_mesh(device, mesh);
  const double kt = tile(k, mesh.height), nt = tile(n, mesh.width);
  const AllReduceCycles sum = all_reduce(device, mesh.height, nt, options);
  WaferCost cost{.breakdown = parts_of(sum),
                 .memory_bytes = kValueBytes * (kt * nt + kt + 2 * nt),
                 .routes = routes_an_axis(options) + kLaunchRoutes};
  cost.breakdown.insert(cost.breakdown.begin(), {"compute", gemv_cycles(device, kt, nt)});
  check_budgets(device, "GEMV", cost);
  return cost;
}

WaferCost prefill_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                             WaferSync sync) {
  check_model(model);
  require(tokens > 0, "prefill of {} tokens", tokens);
  check_mesh(device, mesh);
  const std::int64_t d = model.hidden, q = std::int64_t{model.num_heads} * model.head_dim, f = model.intermediate,
                     s = tokens;
  WaferCost total;
  double buffers = 0;
  const auto add = [&](const char* name, int count, const GemmSize& size, WaferGemm method) {
    const WaferCost one = gemm(device, size, mesh, method, sync);
    total.breakdown.push_back({name, count * one.cycles()});
    total.routes = std::max(total.routes, one.routes);
    buffers = std::max(buffers, one.memory_bytes);
  };
  add("Q, K, V", 3, {s, d, q}, WaferGemm::mesh_gemm);
  add("scores", 1, {s, q, s}, WaferGemm::gemm_t);
  add("values", 1, {s, s, q}, WaferGemm::mesh_gemm);
  add("O", 1, {s, q, d}, WaferGemm::mesh_gemm);
  add("gate, up", 2, {s, d, f}, WaferGemm::mesh_gemm);
  add("down", 1, {s, f, d}, WaferGemm::mesh_gemm);

  const double dx = tile(d, mesh.width), dy = tile(d, mesh.height), qx = tile(q, mesh.width), fx = tile(f, mesh.width);
  const double sy = tile(s, mesh.height), sx = tile(s, mesh.width), qy = tile(q, mesh.height),
               fy = tile(f, mesh.height);
  const double weights = 3 * dy * qx + qy * dx + 2 * dy * fx + fy * dx;
  const double live = sy * dx + std::max(3 * sy * qx + sy * sx, 2 * sy * fx);
  total.memory_bytes = kValueBytes * (weights + live) + buffers;
  total.resident_bytes = kValueBytes * weights;
  check_budgets(device, "a layer of prefill", total);
  return total;
}

WaferCost decode_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context,
                            const AllReduceOptions& options) {
  check_model(model);
  require(context > 0, "decode after {} tokens", context);
  check_mesh(device, mesh);
  const std::int64_t heads = std::int64_t{model.num_heads} * model.head_dim;
  const std::int64_t kv_heads = std::int64_t{model.num_kv_heads} * model.head_dim;
  const int w = mesh.width, h = mesh.height;
  const double dx = tile(model.hidden, w), dy = tile(model.hidden, h), qx = tile(heads, w),
               fx = tile(model.intermediate, w);
  const double sy = tile(context, h);

  AllReduceCycles sums;
  double compute = 0;
  const auto reduce = [&](int line, double n) {
    const AllReduceCycles one = all_reduce(device, line, n, options);
    sums = {sums.hops + one.hops, sums.stages + one.stages, sums.words + one.words, sums.waits + one.waits};
  };
  const auto multiply = [&](double k, double n, int line) {
    compute += gemv_cycles(device, k, n);
    reduce(line, n);
  };
  reduce(h, 1);                                     // norm
  for (int i = 0; i < 3; ++i) multiply(dy, qx, h);  // Q, K, V: hidden lies along y, heads along x
  multiply(qx, sy, w);                              // scores
  for (int i = 0; i < 2; ++i) reduce(h, 1);         // softmax: maximum and sum
  multiply(sy, qx, h);                              // values
  multiply(qx, dy, w);                              // O, and hidden lies along y again
  reduce(h, 1);                                     // norm
  for (int i = 0; i < 2; ++i) multiply(dy, fx, h);  // gate, up
  multiply(fx, dy, w);                              // down

  WaferCost cost{.breakdown = {{"GEMV", compute},
                               {"all-reduce", sums.sum()},
                               {"other serial work", device.decode_serial_cycles.value}},
                 .routes = 2 * routes_an_axis(options) + kLaunchRoutes};
  const double weights = 4 * dy * qx + 3 * dy * fx;
  const double kv = 2 * sy * tile(kv_heads, w);
  cost.memory_bytes = kValueBytes * (weights + kv + dx + 3 * qx + 2 * fx + sy);
  cost.resident_bytes = kValueBytes * (weights + kv);
  check_budgets(device, "a layer of decode", cost);
  return cost;
}

KvCapacity kv_capacity(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh,
                       const KvCapacityOptions& options) {
  check_model(model);
  check_mesh(device, mesh);
  require(options.regions >= 0 && options.reserve_bytes >= 0, "{} regions, {} bytes in reserve", options.regions,
          options.reserve_bytes);
  const double cores = static_cast<double>(mesh.width) * mesh.height;
  KvCapacity capacity;
  const double fitting = std::max(1.0, std::floor(device.num_cores.value / cores));
  capacity.regions =
      options.regions > 0 ? options.regions : static_cast<int>(std::min(fitting, 1.0 * model.num_layers));

  const double all_weights = wafer_weight_bytes(model) / cores;  // of a core, in one region
  const double room = device.sram_bytes.value - options.reserve_bytes;
  capacity.weight_bytes = all_weights / capacity.regions;
  capacity.token_bytes = wafer_kv_bytes(model) / capacity.regions / mesh.width;
  capacity.free_bytes = room - capacity.weight_bytes;
  if (room <= 0)
    throw_error<InputError>("KV cache: {:.0f} bytes in reserve, but a core of {} has {:.0f}", options.reserve_bytes,
                            device.name, device.sram_bytes.value);
  if (capacity.free_bytes < capacity.token_bytes / mesh.height)
    throw_error<InputError>(
        "KV cache: weights need {:.0f} bytes a core in {} region(s) of {} x {}, but {:.0f} are free; {} regions would "
        "do",
        capacity.weight_bytes, capacity.regions, mesh.width, mesh.height, room, std::floor(all_weights / room) + 1);
  const double most = 9e15 / mesh.height;  // what an integer holds, however much memory a file claims
  const double tokens = std::min(capacity.free_bytes / capacity.token_bytes, most);
  capacity.concat_tokens = static_cast<std::int64_t>(tokens);
  capacity.shift_tokens = static_cast<std::int64_t>(tokens * mesh.height);
  return capacity;
}

}  // namespace heddle

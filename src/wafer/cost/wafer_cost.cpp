#include "wafer/cost/wafer_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "wafer/cost/wafer_budgets.h"
#include "wafer/cost/wafer_regions.h"

namespace heddle {
namespace {

void check_model(const WaferModel& model) {
  require(model.experts >= 0 && model.experts_per_token >= (model.experts > 0 ? 1 : 0) &&
              model.experts_per_token <= model.experts,
          "{} of {} experts a token", model.experts_per_token, model.experts);
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

// Cycles that a step waits for its longest path of `hops`, beside its words.
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

// The same for a step of Cannon, whose ring closes with all hops of a line. Only the cores at the two ends see that
// path, and with two buffers every second step goes in the other direction.
double long_way(const PlmrDevice& device, WaferSync sync, double cores) {
  const double alpha = device.alpha_cycles.value, ramp = device.ramp_cycles.value;
  if (sync == WaferSync::dataflow) return 0;
  return ramp + alpha * (sync == WaferSync::rendezvous ? cores / 2 : cores - 1);
}

constexpr double kRoundedUp = 1;

// gemm_cost without its checks of budgets. `rounding` applies to cycles as PlmrDevice::tile_rounding does; memory is
// rounded up.
WaferCost gemm(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferGemm method, WaferSync sync,
               double rounding = kRoundedUp) {
  require(size.m > 0 && size.k > 0 && size.n > 0, "GEMM of {} x {} x {}", size.m, size.k, size.n);
  const std::int64_t side = std::lcm(std::int64_t{mesh.width}, std::int64_t{mesh.height});
  const double p = static_cast<double>(side), columns = p / mesh.width, rows = p / mesh.height;
  const double whole_m = tile(size.m, side), whole_k = tile(size.k, side), whole_n = tile(size.n, side);
  const auto dealt = [&](std::int64_t values, double whole) {
    const double exact = static_cast<double>(values) / p;
    return exact + rounding * (whole - exact);
  };
  const double m = dealt(size.m, whole_m), k = dealt(size.k, whole_k), n = dealt(size.n, whole_n);

  const double alpha = device.alpha_cycles.value, beta = device.beta_cycles.value, ramp = device.ramp_cycles.value;
  const double step = (rows * columns * k + rows + columns) * device.call_cycles.value +
                      rows * columns * k * m * n * device.mac_cycles.value;
  const auto link_cycles = [&](double values) { return values * kValueBytes / device.link_bytes_per_cycle.value; };
  // In a step each row of a core's tiles of A passes on one tile; for B each column does, for C each row.
  const double a = rows * link_cycles(m * k), b = columns * link_cycles(k * n), c = rows * link_cycles(m * n);
  const double words = std::max(a, b), two_hops = 2 * alpha + ramp, width = mesh.width,
               longest = std::max(mesh.width, mesh.height);
  const double chain = width * (alpha + beta);

  WaferCost cost;
  const double tile_bytes = rows * columns * kValueBytes;
  const double a_bytes = tile_bytes * whole_m * whole_k, b_bytes = tile_bytes * whole_k * whole_n;
  const double c_bytes = tile_bytes * whole_m * whole_n;
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
    case WaferGemm::gemm_t: {
      const double hidden = std::max({step, b + two_hops, c + beta + ramp});
      if (sync == WaferSync::barrier) {
        add_steps(std::max(hidden, (hidden + chain + c) / 2));
        cost.breakdown.push_back({"skew", std::min(hidden, chain)});
      } else {
        add_steps(hidden);
        cost.breakdown.push_back({"skew", chain + 2 * std::max(0.0, chain - hidden)});
      }
      cost.memory_bytes = a_bytes + 2 * b_bytes + 3 * c_bytes;
      cost.routes = 5;  // three that shift B, two of the chain
      break;
    }
    case WaferGemm::cannon:
      add_steps(std::max({step, words + alpha + ramp, words + long_way(device, sync, longest)}));
      if (sync == WaferSync::dataflow) cost.breakdown.push_back({"skew", longest * alpha});
      cost.breakdown.push_back({"alignment", p / 2 * (a + std::max(alpha + ramp, long_way(device, sync, width)))});
      cost.routes = 6;
      break;
    case WaferGemm::summa:
      if (sync == WaferSync::dataflow) {
        add_steps(step + words + ramp + beta);
        cost.breakdown.push_back({"skew", 2 * (width + mesh.height) * alpha});
      } else {
        add_steps(step + words + ramp + beta + 0.75 * longest * alpha);
      }
      cost.routes = 4;
      break;
    case WaferGemm::all_gather:
      // Each core relays the tiles of all others on its line; the last step has none to call for.
      cost.breakdown = {{"compute", p * step - 2 * rows * columns * device.call_cycles.value},
                        {"communication", std::max((p - columns) * a + (width - 1) * (alpha + beta),
                                                   (p - rows) * b + (mesh.height - 1) * (alpha + beta))}};
      cost.memory_bytes = (p + 1) * (a_bytes + b_bytes) + c_bytes;
      cost.routes = 4;
      break;
  }
  return cost;
}

// Rows of an expert when tokens are spread evenly.
std::int64_t expert_tokens(const WaferModel& model, std::int64_t tokens) {
  return (tokens * model.experts_per_token - 1) / model.experts + 1;
}

// Members that a group needs so that `phases` phases reduce a line to one core.
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

// The core that ends with the sum: in each phase the member in the middle of its group (schedule/k_tree.h).
int k_tree_root(int line, int fan) {
  if (line <= 1) return 0;
  const int groups = (line - 1) / fan + 1, group = k_tree_root(groups, fan);
  return group * fan + std::min(fan, line - group * fan) / 2;
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
      const int fan = k_tree_fan(line, options.phases), root = k_tree_root(line, fan);
      AllReduceCycles cycles{.hops = alpha * std::max(root, line - 1 - root), .words = 1.5 * n * value_cycles};
      double distance = 1;
      for (int phase = 0, members = line; phase < options.phases && members > 1; ++phase) {
        const int stages = std::min(fan, members) / 2;
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

// Explains the memory of a mesh with unequal sides: a core holds a tile for each step of their least common multiple.
std::string uneven_sides(WaferMesh mesh) {
  const auto better = evener_mesh(mesh);
  if (!better) return {};
  return fmt::format("{}; {} x {} has tiles of one step", gemm_steps_text(mesh), better->width, better->height);
}

// For a K-tree on `axes` axes: names the largest K that the device's routes allow.
std::string fewer_routes(const PlmrDevice& device, const AllReduceOptions& options, int axes) {
  if (options.method != WaferAllReduce::k_tree) return {};
  const auto routes = [&](int phases) { return axes * routes_an_axis({.phases = phases}) + kLaunchRoutes; };
  int most = 0;
  while (routes(most + 1) <= device.free_routes.value && most < options.phases) ++most;
  if (most > 0) return fmt::format("K = {} is the largest that does, with {}", most, routes(most));
  return fmt::format("K = 1 needs {}", routes(1));
}

double gemv_cycles(const PlmrDevice& device, double k, double n) {
  return k * (device.vector_slice_cycles.value + n * device.mac_cycles.value);
}

}  // namespace

double WaferCost::cycles() const {
  return std::accumulate(breakdown.begin(), breakdown.end(), 0.0,
                         [](double sum, const Part& part) { return sum + part.cycles; });
}

double WaferCost::cycles(std::string_view part) const {
  double sum = 0;
  for (const Part& one : breakdown)
    if (one.name == part) sum += one.cycles;
  return sum;
}

double WaferCost::cycles(Basis basis) const {
  double sum = 0;
  for (const Part& one : breakdown)
    if (one.basis == basis) sum += one.cycles;
  return sum;
}

Bases WaferCost::bases() const {
  Bases all;
  for (const Part& one : breakdown) all |= one.basis;
  return all;
}

Bases WaferCost::bases(std::string_view part) const {
  Bases all;
  for (const Part& one : breakdown)
    if (one.name == part) all |= one.basis;
  return all;
}

void WaferCost::add(std::string_view part, double cycles, Basis basis) {
  const auto same =
      std::ranges::find_if(breakdown, [&](const Part& one) { return one.name == part && one.basis == basis; });
  if (same == breakdown.end())
    breakdown.push_back({std::string(part), cycles, basis});
  else
    same->cycles += cycles;
}

void WaferCost::add_run(std::string_view part, double cycles, double hops_and_words, Basis basis) {
  constexpr double kRounding = 1e-9;  // clocks are rounded to ticks
  const double own = std::min(hops_and_words, cycles), rest = cycles - own;
  const bool has_rest = rest > kRounding * cycles;
  if (own > 0 || !has_rest) add(part, has_rest ? own : cycles, basis);
  if (has_rest) add(part, rest, Basis::analytical);
}

double wafer_weight_bytes(const WaferModel& model) {
  const double d = model.hidden, heads = static_cast<double>(model.num_heads) * model.head_dim;
  const double kv_heads = static_cast<double>(model.num_kv_heads) * model.head_dim;
  const double feed_forward = 3 * d * model.intermediate * std::max(model.experts, 1) + d * model.experts;
  return kValueBytes * model.num_layers * (2 * d * heads + 2 * d * kv_heads + feed_forward);
}

double wafer_kv_bytes(const WaferModel& model) {
  return kValueBytes * model.num_layers * 2 * (static_cast<double>(model.num_kv_heads) * model.head_dim);
}

WaferCost gemm_cost(const PlmrDevice& device, const GemmSize& size, WaferMesh mesh, WaferGemm method, WaferSync sync) {
  check_wafer_mesh(device, mesh);
  WaferCost cost = gemm(device, size, mesh, method, sync);
  check_core_budgets(device, name_of(method), mesh, cost,
                     [&](WaferMesh other) { return gemm(device, size, other, method, sync).memory_bytes; },
                     {.much_memory = uneven_sides(mesh)});
  return cost;
}

WaferCost all_reduce_cost(const PlmrDevice& device, int line, std::int64_t n, const AllReduceOptions& options) {
  require(n > 0, "an all-reduce of {} values", n);
  const AllReduceCycles cycles = all_reduce(device, line, static_cast<double>(n), options);
  WaferCost cost{.breakdown = parts_of(cycles),
                 .memory_bytes = 2 * kValueBytes * static_cast<double>(n),
                 .routes = routes_an_axis(options) + kLaunchRoutes};
  check_core_budgets(device, "all-reduce", {line, 1}, cost, [&](WaferMesh) { return cost.memory_bytes; },
                     {.fewer_routes = fewer_routes(device, options, 1)});
  return cost;
}

WaferCost gemv_cost(const PlmrDevice& device, std::int64_t k, std::int64_t n, WaferMesh mesh,
                    const AllReduceOptions& options, std::int64_t batch) {
  require(k > 0 && n > 0 && batch > 0, "{} GEMV of {} x {}", batch, k, n);
  check_wafer_mesh(device, mesh);
  const auto vectors = static_cast<double>(batch);
  const auto memory_on = [=](WaferMesh m) {
    const double kt = tile(k, m.height), nt = tile(n, m.width);
    return kValueBytes * (kt * nt + vectors * (kt + 2 * nt));
  };
  const double kt = tile(k, mesh.height), nt = tile(n, mesh.width);
  WaferCost cost{.breakdown = parts_of(all_reduce(device, mesh.height, vectors * nt, options)),
                 .memory_bytes = memory_on(mesh),
                 .routes = routes_an_axis(options) + kLaunchRoutes};
  cost.breakdown.insert(cost.breakdown.begin(), {"compute", vectors * gemv_cycles(device, kt, nt)});
  check_core_budgets(device, "GEMV", mesh, cost, memory_on, {.fewer_routes = fewer_routes(device, options, 1)});
  return cost;
}

ExpertBands expert_bands(WaferMesh mesh, int experts) {
  require(experts > 0, "{} experts", experts);
  if (mesh.width < 3 || mesh.height < 3)
    throw_error<InputError>("a mesh of {} x {} cores; each side needs 3 or more", mesh.width, mesh.height);
  ExpertBands bands{.count = std::min(experts, mesh.height / 3)};
  const int most = mesh.height / bands.count;
  bands.height = most;
  while (bands.height > 3 && mesh.width % bands.height != 0) --bands.height;
  if (mesh.width % bands.height != 0) bands.height = most;
  bands.rounds = (experts - 1) / bands.count + 1;
  return bands;
}

std::vector<LayerGemm> prefill_gemms(const WaferModel& model, std::int64_t tokens) {
  const std::int64_t d = model.hidden, q = std::int64_t{model.num_heads} * model.head_dim, f = model.intermediate,
                     s = tokens;
  const int experts = std::max(model.experts, 1);
  const std::int64_t t = model.experts > 0 ? expert_tokens(model, tokens) : tokens;
  return {{.name = "Q, K, V", .count = 3, .size = {s, d, q}},
          {.name = "scores", .size = {s, q, s}, .method = WaferGemm::gemm_t},
          {.name = "values", .size = {s, s, q}},
          {.name = "O", .size = {s, q, d}},
          {.name = "gate, up", .count = 2 * experts, .size = {t, d, f}},
          {.name = "down", .count = experts, .size = {t, f, d}}};
}

std::vector<LayerAllReduce> decode_all_reduces(const WaferModel& model, WaferMesh mesh, std::int64_t context,
                                               TileSizes sizes) {
  const auto heads = std::int64_t{model.num_heads} * model.head_dim;
  const int w = mesh.width, h = mesh.height;
  const auto cut = [=](std::int64_t size, int cores) {
    return sizes == TileSizes::rounded_up ? tile(size, cores) : static_cast<double>(size) / cores;
  };
  const double dy = cut(model.hidden, h), qx = cut(heads, w), fx = cut(model.intermediate, w), sy = cut(context, h);
  std::vector<LayerAllReduce> sums{{h, 1},  {h, qx}, {h, qx}, {h, qx},  // norm; Q, K, V: hidden along y, heads along x
                                   {w, sy}, {h, 1},  {h, 1},            // scores; softmax's maximum and sum
                                   {h, qx}, {w, dy},                    // values; O, after which hidden lies along y
                                   {h, 1}};                             // norm
  if (model.experts > 0) sums.push_back({h, 1.0 * model.experts});
  for (int expert = 0; expert < std::max(model.experts_per_token, 1); ++expert)
    sums.insert(sums.end(), {{h, fx}, {h, fx}});  // gate, up
  sums.push_back({w, dy});                        // down
  return sums;
}

namespace {

bool is_feed_forward(const LayerGemm& product) {
  return product.name == "gate, up" || product.name == "down";
}

struct ExpertLayer {
  WaferCost cost;      // memory: buffers of an expert's GEMM
  double weights = 0;  // of a core, in values
};

ExpertLayer expert_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                         WaferSync sync) {
  const ExpertBands bands = expert_bands(mesh, model.experts);
  const WaferMesh band{mesh.width, bands.height};
  const std::int64_t rows = expert_tokens(model, tokens), d = model.hidden, f = model.intermediate;
  const double rounding = device.tile_rounding.value;
  const WaferCost up = gemm(device, {rows, d, f}, band, WaferGemm::mesh_gemm, sync, rounding);
  const WaferCost down = gemm(device, {rows, f, d}, band, WaferGemm::mesh_gemm, sync, rounding);
  const double sy = tile(tokens, mesh.height), dx = tile(d, mesh.width), experts = model.experts;
  const double router = dx * device.call_cycles.value + sy * dx * experts * device.mac_cycles.value +
                        all_reduce(device, mesh.width, sy * experts, {.sync = sync}).sum() +
                        3 * sy * experts * device.value_cycles.value;
  const double row_words = dx * kValueBytes / device.link_bytes_per_cycle.value;
  const double one_way = mesh.height / 4.0 * sy * model.experts_per_token * row_words +
                         mesh.height * (device.alpha_cycles.value + device.beta_cycles.value) +
                         device.ramp_cycles.value;
  ExpertLayer layer;
  layer.cost.breakdown = {{"router", router},
                          {"all-to-all", 2 * one_way},
                          {"experts' gate, up", 2 * bands.rounds * up.cycles()},
                          {"experts' down", bands.rounds * down.cycles()}};
  layer.cost.memory_bytes = std::max(up.memory_bytes, down.memory_bytes);
  // Shifts of both axes, the router's sum along x, all-to-all in both directions along y.
  layer.cost.routes = up.routes + routes_an_axis({}) + kLaunchRoutes + 4;
  layer.weights =
      bands.rounds * 3.0 * static_cast<double>(d) * static_cast<double>(f) / (1.0 * band.width * band.height) +
      dx * experts;
  return layer;
}

WaferCost prefill_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                        WaferSync sync) {
  WaferCost total;
  double buffers = 0;
  for (const LayerGemm& product : prefill_gemms(model, tokens)) {
    if (model.experts > 0 && is_feed_forward(product)) continue;
    const WaferCost one = gemm(device, product.size, mesh, product.method, sync, device.tile_rounding.value);
    total.breakdown.push_back({product.name, product.count * one.cycles()});
    total.routes = std::max(total.routes, one.routes);
    buffers = std::max(buffers, one.memory_bytes);
  }
  const std::int64_t q = std::int64_t{model.num_heads} * model.head_dim;
  const double dx = tile(model.hidden, mesh.width), dy = tile(model.hidden, mesh.height), qx = tile(q, mesh.width),
               qy = tile(q, mesh.height), fx = tile(model.intermediate, mesh.width),
               fy = tile(model.intermediate, mesh.height), sy = tile(tokens, mesh.height),
               sx = tile(tokens, mesh.width);
  double weights = 3 * dy * qx + qy * dx, live = sy * dx + 3 * sy * qx + sy * sx;
  if (model.experts > 0) {
    const ExpertLayer experts = expert_layer(device, model, mesh, tokens, sync);
    total.breakdown.insert(total.breakdown.end(), experts.cost.breakdown.begin(), experts.cost.breakdown.end());
    buffers = std::max(buffers, experts.cost.memory_bytes);
    total.routes = std::max(total.routes, experts.cost.routes);
    weights += experts.weights;
  } else {
    weights += 2 * dy * fx + fy * dx;
    live = std::max(live, sy * dx + 2 * sy * fx);
  }
  total.resident_bytes = kValueBytes * weights;
  total.memory_bytes = total.resident_bytes + kValueBytes * live + buffers;
  total.buffer_bytes = buffers;
  return total;
}

WaferCost decode_layer(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context,
                       const AllReduceOptions& options) {
  const std::int64_t heads = std::int64_t{model.num_heads} * model.head_dim;
  const std::int64_t kv_heads = std::int64_t{model.num_kv_heads} * model.head_dim;
  const int w = mesh.width, h = mesh.height;
  const double dx = tile(model.hidden, w), dy = tile(model.hidden, h), qx = tile(heads, w),
               fx = tile(model.intermediate, w), sy = tile(context, h);

  double sums = 0;
  for (const LayerAllReduce& one : decode_all_reduces(model, mesh, context))
    sums += all_reduce(device, one.line, one.n, options).sum();
  const int active = std::max(model.experts_per_token, 1);
  const double products = 3 * gemv_cycles(device, dy, qx) + gemv_cycles(device, qx, sy) + gemv_cycles(device, sy, qx) +
                          gemv_cycles(device, qx, dy) + gemv_cycles(device, dy, model.experts) +
                          active * (2 * gemv_cycles(device, dy, fx) + gemv_cycles(device, fx, dy));
  // Two norms, two residuals and the KV-cache write (8 hidden), rotations (2 heads), softmax, SwiGLU.
  const double values = 8 * dy + 2 * qx + 3 * sy + (model.experts > 0 ? 3 * active : 2) * fx + 3 * model.experts;

  WaferCost cost{.breakdown = {{"GEMV", products},
                               {"all-reduce", sums},
                               {"element-wise work", values * device.value_cycles.value},
                               {kFittedResidual, device.decode_serial_cycles.value, Basis::fitted}},
                 .routes = 2 * routes_an_axis(options) + kLaunchRoutes};
  const double weights = 4 * dy * qx + 3 * dy * fx * std::max(model.experts, 1) + dy * model.experts;
  const double kv = 2 * sy * tile(kv_heads, w);
  cost.memory_bytes = kValueBytes * (weights + kv + dx + 3 * qx + 2 * fx + sy);
  cost.resident_bytes = kValueBytes * (weights + kv);
  return cost;
}

}  // namespace

WaferCost prefill_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t tokens,
                             WaferSync sync) {
  check_model(model);
  require(tokens > 0, "prefill of {} tokens", tokens);
  check_wafer_mesh(device, mesh);
  WaferCost cost = prefill_layer(device, model, mesh, tokens, sync);
  check_core_budgets(device, "prefill", mesh, cost,
                     [&](WaferMesh other) { return prefill_layer(device, model, other, tokens, sync).memory_bytes; },
                     {.much_memory = uneven_sides(mesh)});
  return cost;
}

WaferCost decode_layer_cost(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, std::int64_t context,
                            const AllReduceOptions& options) {
  check_model(model);
  require(context > 0, "decode after {} tokens", context);
  check_wafer_mesh(device, mesh);
  WaferCost cost = decode_layer(device, model, mesh, context, options);
  check_core_budgets(device, "decode", mesh, cost,
                     [&](WaferMesh other) { return decode_layer(device, model, other, context, options).memory_bytes; },
                     {.fewer_routes = fewer_routes(device, options, 2)});
  return cost;
}

namespace {

// Where the weights leave no room for a token: names the number of regions of this mesh that would, or the smallest
// square mesh; else empty.
std::string where_weights_fit(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh, double room) {
  const auto least_regions = [&](WaferMesh m) {
    return std::floor(wafer_weight_bytes(model) / (static_cast<double>(m.width) * m.height) / room) + 1;
  };
  const auto most_regions = [&](WaferMesh m) { return std::min(region_room(device, m).by_cores, model.num_layers); };
  if (least_regions(mesh) <= most_regions(mesh)) return fmt::format("{:.0f} regions would do", least_regions(mesh));
  const int most_side = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  for (int side = 3; side <= most_side; ++side)
    if (const WaferMesh square{side, side}; least_regions(square) <= most_regions(square))
      return fmt::format("the smallest square mesh that would do is {} x {}, in {:.0f} regions", side, side,
                         least_regions(square));
  return fmt::format(
      "no square mesh of {} would do: {} layers' weights are {:.4g} GB, its {:.0f} cores have {:.4g} GB for "
      "them",
      device.name, model.num_layers, wafer_weight_bytes(model) / 1e9, device.num_cores.value,
      device.num_cores.value * room / 1e9);
}

}  // namespace

KvCapacity kv_capacity(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh,
                       const KvCapacityOptions& options) {
  check_model(model);
  check_wafer_mesh(device, mesh);
  require(options.regions >= 0 && options.reserve_bytes >= 0, "{} regions, {} bytes in reserve", options.regions,
          options.reserve_bytes);
  const double cores = static_cast<double>(mesh.width) * mesh.height;
  const RegionRoom room_for = region_room(device, mesh);
  const int most_regions = std::min(room_for.by_cores, model.num_layers);
  KvCapacity capacity{.side_by_side = room_for.side_by_side};
  if (options.regions > room_for.by_cores)
    throw_error<InputError>(
        "KV cache: {} regions of {} x {}, but the {:.0f} cores of {} make {}, of which {} lie side by side",
        options.regions, mesh.width, mesh.height, device.num_cores.value, device.name, room_for.by_cores,
        room_for.side_by_side);
  if (options.regions > model.num_layers)
    throw_error<InputError>("KV cache: {} regions share {} layers", options.regions, model.num_layers);
  capacity.regions = options.regions > 0 ? options.regions : most_regions;

  const double all_weights = wafer_weight_bytes(model) / cores;  // per core, in one region
  const double room = device.sram_bytes.value - options.reserve_bytes;
  capacity.weight_bytes = all_weights / capacity.regions;
  capacity.token_bytes = wafer_kv_bytes(model) / capacity.regions / mesh.width;
  capacity.free_bytes = room - capacity.weight_bytes;
  if (room <= 0)
    throw_error<InputError>("KV cache: {:.0f} bytes in reserve, but a core of {} has {:.0f}", options.reserve_bytes,
                            device.name, device.sram_bytes.value);
  if (capacity.free_bytes < capacity.token_bytes / mesh.height)
    throw_error<InputError>(
        "KV cache: core (0, 0) needs {:.0f} bytes for weights in {} region(s) of {} x {}, {:.0f} more than the {:.0f} "
        "that it has for them; {}",
        capacity.weight_bytes, capacity.regions, mesh.width, mesh.height, capacity.weight_bytes - room, room,
        where_weights_fit(device, model, mesh, room));
  const double most = 9e15 / mesh.height;  // what an integer holds, however much memory a device file states
  const double tokens = std::min(capacity.free_bytes / capacity.token_bytes, most);
  capacity.concat_tokens = static_cast<std::int64_t>(tokens);
  capacity.shift_tokens = static_cast<std::int64_t>(tokens * mesh.height);
  return capacity;
}

}  // namespace heddle

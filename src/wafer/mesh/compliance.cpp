#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "schedule/k_tree.h"
#include "schedule/make_schedule.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/gemv.h"
#include "wafer/mesh/line_time.h"
#include "wafer/mesh/simulate.h"

namespace heddle::mesh {
namespace {

// A mesh that only counts: the memory and routes a program needs on a core, and the paths of one line along x.
class AccountMesh {
 public:
  AccountMesh(const PlmrDevice& device, const Grid& grid) : grid_(grid), budget_(device, grid) {}

  const Grid& grid() const { return grid_; }
  void phase(std::string_view name) { budget_.phase(name); }
  Tile allocate(std::string_view name, int rows, int columns, Buffers buffers) {
    return budget_.allocate(name, rows, columns, buffers);
  }
  void release(Tile tile) { budget_.release(tile); }
  template <class Body>
  void repeat(int count, Body&& body) {
    for (int step = 0; step < count; ++step) body(step);
  }
  void skew(std::initializer_list<TileAxis> tiles) {
    for (const TileAxis& t : tiles) shift(t.tile, t.axis);
  }
  void shift(Tile, Axis axis) {
    budget_.take_shift(axis);
    shifts_ = true;
  }
  void broadcast(Tile, Tile, Axis axis, Root root) {
    budget_.take_relay(axis);
    if (axis == Axis::x) add_origin(root.in_line(0, grid_.columns));
  }
  void reduce(Tile, Tile, Axis axis, Root root) {
    budget_.take_chain(axis);
    add_chain(root.in_line(0, grid_.columns));
  }
  void gather(Tile, std::span<const Tile>, Axis axis) {
    budget_.take_relay(axis);
    for (int place = 0; axis == Axis::x && place < grid_.columns; ++place) add_origin(place);
  }
  void exchange(Tile, Tile, Axis axis, std::span<const RowMove>) { budget_.take_exchange(axis); }
  void all_reduce(Tile, Axis axis, Reduction, const AllReduceOptions& options) {
    budget_.take_all_reduce(axis, options);
  }
  void clear(Tile) {}
  void multiply_add(Tile, Tile, Tile, Operand) {}
  void multiply_vector(Tile, Tile, Tile) {}

  const CoreBudget& budget() const { return budget_; }
  // Paths that begin, end or pass at the busiest core. The paths from each origin to all others touch every core.
  int paths() const {
    const int shifts = shifts_ ? shift_routes(grid_.cores.width, grid_.order) : 0;
    return std::max(shifts, static_cast<int>(origins_.size()));
  }
  // Hops of the longest path of a step, and the stages on it.
  int hops() const { return std::max(stages_, shifts_ ? longest_hop() : 0); }
  int stages() const { return stages_; }

 private:
  int core_of(int place) const { return grid_.ring_core(Axis::x, grid_.ring_position(Axis::x, place)); }
  // With more origins than routes the data are relayed in software, one stage per core.
  void add_origin(int place) {
    origins_.insert(place);
    add_chain(place);
  }
  void add_chain(int place) {
    const int core = core_of(place);
    stages_ = std::max({stages_, core, grid_.cores.width - 1 - core});
  }
  int longest_hop() const {
    int longest = 0;
    for (int p = 0; p < grid_.cores.width; ++p) longest = std::max(longest, grid_.hops(Axis::x, p));
    return longest;
  }

  Grid grid_;
  CoreBudget budget_;
  bool shifts_ = false;
  int stages_ = 0;
  std::set<int> origins_;
};
static_assert(Mesh<AccountMesh>);

PlmrDevice without_budgets(PlmrDevice device) {
  device.sram_bytes.value = device.free_routes.value = 1e15;
  return device;
}

PlmrDevice with_room_for(PlmrDevice device, int line) {
  for (Constant PlmrDevice::*side : {&PlmrDevice::mesh_width, &PlmrDevice::mesh_height})
    (device.*side).value = std::max((device.*side).value, 1.0 * line);
  return device;
}

// Hops or stages of an all-reduce: its time when everything else costs nothing.
double critical_path(PlmrDevice device, int line, const AllReduceOptions& options, double alpha, double beta) {
  device.alpha_cycles.value = alpha;
  device.beta_cycles.value = beta;
  std::vector<double> clocks(static_cast<std::size_t>(line));
  all_reduce(device, clocks, 0, options);
  return *std::ranges::max_element(clocks);
}

ComplianceRow gemm_row(const PlmrDevice& device, const char* name, WaferGemm method, int line) {
  AccountMesh mesh(without_budgets(device), Grid::square({line, line}, line_order(method)));
  run_gemm(mesh, allocate_gemm(mesh, {line, line, line}, method), method);
  return {.program = name,
          .paths = mesh.paths(),
          .routes = mesh.budget().routes(),
          .hops = static_cast<double>(mesh.hops()),
          .stages = static_cast<double>(mesh.stages()),
          .memory_tiles = mesh.budget().memory_bytes() / kValueBytes};
}

ComplianceRow all_reduce_row(const PlmrDevice& device, const char* name, const AllReduceOptions& options, int line) {
  AccountMesh mesh(without_budgets(device), Grid::of_cores({line, line}));
  const Tile sum = mesh.allocate("sum", 1, 1, Buffers::two);
  for (const Axis axis : {Axis::x, Axis::y}) mesh.all_reduce(sum, axis, Reduction::sum, options);
  const bool is_tree = options.method == WaferAllReduce::k_tree;
  return {.program = name,
          .paths = is_tree ? make_schedule<schedule::KTree>(line, options.phases).paths_at_root()
                           : all_reduce_routes(line, options),
          .routes = mesh.budget().routes(),
          .hops = critical_path(device, line, options, 1, 0),
          .stages = critical_path(device, line, options, 0, 1),
          .memory_tiles = mesh.budget().memory_bytes() / kValueBytes};
}

}  // namespace

std::string letters_of(bool latency, bool memory, bool routes) {
  std::string all;
  for (const auto& [keeps, letter] : {std::pair{latency, "L"}, {memory, "M"}, {routes, "R"}})
    if (keeps) all += (all.empty() ? "" : " ") + std::string(letter);
  return all;
}

// Growth is measured by comparing with a line twice as long.
std::vector<ComplianceRow> gemm_compliance(const PlmrDevice& device, int line) {
  std::vector<ComplianceRow> rows;
  const PlmrDevice roomy = with_room_for(device, 2 * line);
  for (const auto& [method, name] : {std::pair{WaferGemm::all_gather, "all-gather GEMM"},
                                     {WaferGemm::summa, "SUMMA"},
                                     {WaferGemm::cannon, "Cannon"},
                                     {WaferGemm::gemm_t, "GEMM-T"},
                                     {WaferGemm::mesh_gemm, "MeshGEMM"}}) {
    ComplianceRow row = gemm_row(roomy, name, method, line);
    const ComplianceRow twice = gemm_row(roomy, name, method, 2 * line);
    row.complies = letters_of(twice.hops == row.hops && twice.stages == row.stages,
                              twice.memory_tiles == row.memory_tiles, 2 * row.paths <= device.free_routes.value);
    rows.push_back(row);
  }
  return rows;
}

std::vector<ComplianceRow> all_reduce_compliance(const PlmrDevice& device, int line, int k_tree_phases) {
  struct Program {
    AllReduceOptions options;
    const char* name;
  };
  std::vector<ComplianceRow> rows;
  const PlmrDevice roomy = with_room_for(device, 2 * line);
  for (const auto& [options, name] :
       {Program{{.method = WaferAllReduce::pipeline}, "pipeline all-reduce"},
        {{.method = WaferAllReduce::ring}, "ring all-reduce"},
        {{.method = WaferAllReduce::k_tree, .phases = k_tree_phases}, "K-tree all-reduce"}}) {
    ComplianceRow row = all_reduce_row(roomy, name, options, line);
    const ComplianceRow twice = all_reduce_row(roomy, name, options, 2 * line);
    row.complies = letters_of(twice.stages < 2 * row.stages, twice.memory_tiles == row.memory_tiles,
                              row.routes <= device.free_routes.value);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace heddle::mesh

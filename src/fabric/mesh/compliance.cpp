#include <algorithm>

#include "base/error.h"
#include "fabric/mesh/core_budget.h"
#include "fabric/mesh/gemv.h"
#include "fabric/mesh/line_time.h"
#include "fabric/mesh/simulate.h"
#include "schedule/k_tree.h"

namespace heddle::mesh {
namespace {

// The mesh that keeps accounts: what a program takes of a core, from one step of each loop.
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
  void repeat(int, Body&& body) {
    body(0);
  }
  void skew(std::initializer_list<TileAxis> tiles) {
    for (const TileAxis& t : tiles) budget_.take_shift(t.axis);
  }
  void shift(Tile, Axis axis) { budget_.take_shift(axis); }
  void broadcast(Tile, Tile, Axis axis, Root) { budget_.take_relay(axis); }
  void reduce(Tile, Tile, Axis axis, Root) { budget_.take_chain(axis); }
  void gather(Tile, std::span<const Tile>, Axis axis) { budget_.take_relay(axis); }
  void exchange(Tile, Tile, Axis axis, std::span<const RowMove>) { budget_.take_exchange(axis); }
  void all_reduce(Tile, Axis axis, Reduction, const AllReduceOptions& options) {
    budget_.take_all_reduce(axis, options);
  }
  void clear(Tile) {}
  void multiply_add(Tile, Tile, Tile, Operand) {}
  void multiply_vector(Tile, Tile, Tile) {}

  const CoreBudget& budget() const { return budget_; }

 private:
  Grid grid_;
  CoreBudget budget_;
};
static_assert(Mesh<AccountMesh>);

PlmrDevice without_budgets(PlmrDevice device) {
  device.sram_bytes.value = device.free_routes.value = 1e15;
  return device;
}

std::string letters(bool latency, bool memory, bool routes) {
  std::string all;
  for (const auto& [keeps, letter] : {std::pair{latency, "L"}, {memory, "M"}, {routes, "R"}})
    if (keeps) all += (all.empty() ? "" : " ") + std::string(letter);
  return all;
}

int longest_hop(const Grid& grid) {
  int longest = 0;
  for (int p = 0; p < grid.cores.width; ++p) longest = std::max(longest, grid.hops(Axis::x, p));
  return longest;
}

// Hops or stages of an all-reduce: its time when nothing else takes any.
double critical_path(PlmrDevice device, int line, const AllReduceOptions& options, double alpha, double beta) {
  device.alpha_cycles.value = alpha;
  device.beta_cycles.value = beta;
  std::vector<double> clocks(static_cast<std::size_t>(line));
  all_reduce(device, clocks, 0, options);
  return *std::ranges::max_element(clocks);
}

}  // namespace

std::vector<ComplianceRow> gemm_compliance(const PlmrDevice& device, int line) {
  struct Program {
    WaferGemm method;
    const char* name;
  };
  std::vector<ComplianceRow> rows;
  for (const auto& [method, name] : {Program{WaferGemm::all_gather, "all-gather GEMM"},
                                     {WaferGemm::summa, "SUMMA"},
                                     {WaferGemm::cannon, "Cannon"},
                                     {WaferGemm::gemm_t, "GEMM-T"},
                                     {WaferGemm::mesh_gemm, "MeshGEMM"}}) {
    const Grid grid = Grid::square({line, line}, line_order(method));
    AccountMesh mesh(without_budgets(device), grid);
    run_gemm(mesh, allocate_gemm(mesh, {line, line, line}, method), method);
    ComplianceRow row{
        .program = name, .routes = mesh.budget().routes(), .memory_tiles = mesh.budget().memory_bytes() / kValueBytes};
    if (method == WaferGemm::all_gather || method == WaferGemm::summa) {
      row.paths = line;  // each core of the line is the beginning of one that touches all
      row.hops = row.stages = line - 1;
    } else {
      row.paths = shift_routes(line, grid.order);
      row.hops = longest_hop(grid);
    }
    if (method == WaferGemm::gemm_t) {
      row.hops = row.stages = line - 1;  // of the chain, when its root is an end
    }
    const double sides = row.hops + row.stages;
    row.complies = letters(sides <= 2, row.memory_tiles < line, 2 * row.paths <= device.free_routes.value);
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
  for (const auto& [options, name] :
       {Program{{.method = WaferAllReduce::pipeline}, "pipeline all-reduce"},
        {{.method = WaferAllReduce::ring}, "ring all-reduce"},
        {{.method = WaferAllReduce::k_tree, .phases = k_tree_phases}, "K-tree all-reduce"}}) {
    AccountMesh mesh(without_budgets(device), Grid::of_cores({line, line}));
    const Tile sum = mesh.allocate("sum", 1, 1, Buffers::two);
    for (const Axis axis : {Axis::x, Axis::y}) mesh.all_reduce(sum, axis, Reduction::sum, options);
    const bool is_tree = options.method == WaferAllReduce::k_tree;
    ComplianceRow row{
        .program = name,
        .paths = is_tree ? schedule::KTree::of(line, options.phases).paths_at_root() : all_reduce_routes(line, options),
        .routes = mesh.budget().routes(),
        .hops = critical_path(device, line, options, 1, 0),
        .stages = critical_path(device, line, options, 0, 1),
        .memory_tiles = mesh.budget().memory_bytes() / kValueBytes};
    row.complies = letters(row.stages < line / 2.0, true, row.routes <= device.free_routes.value);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace heddle::mesh

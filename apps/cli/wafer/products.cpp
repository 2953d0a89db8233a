// heddle wafer gemm, heddle wafer gemv: one GEMM or GEMV on a mesh, with all three synchronisations.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cli/number_option.h"
#include "cli/wafer/report.h"
#include "cli/wafer/wafer.h"
#include "wafer/cost/wafer_predict.h"
#include "wafer/mesh/baselines.h"
#include "wafer/mesh/simulate.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr WaferMesh kGemmMesh{720, 720};
constexpr WaferMesh kGemvMesh{750, 750};  // the paper does not say; the largest square of its device
constexpr std::int64_t kMostSize = std::int64_t{1} << 24;

template <class Value>
struct ProductChoice {
  const char* name;
  Value value;
};

constexpr std::array<ProductChoice<WaferSync>, 3> kSyncs{{
    {"dataflow", WaferSync::dataflow},
    {"rendezvous", WaferSync::rendezvous},
    {"barrier", WaferSync::barrier},
}};

struct ProductOptions {
  CLI::App* command = nullptr;  // to ask which options were given
  WaferOutput output;
  std::int64_t n = 0;
  std::optional<std::int64_t> m, k;  // n where they are not given
  std::optional<WaferMesh> mesh;
  std::string method;
  std::string sync = "dataflow";
  std::string timing = "closed";
  int phases = 2;
  int batch = 1;  // of a GEMV: vectors
};

bool is_baseline(const std::string& name) {
  return wafer_method(name) != WaferMethod::waferllm;
}

bool is_simulated(const ProductOptions& options) {
  return options.timing == "simulated";
}

GemmSize size_of(const ProductOptions& options) {
  return {options.m.value_or(options.n), options.k.value_or(options.n), options.n};
}

// Rejects options that the method does not use.
void refuse_unused_options(const ProductOptions& options) {
  const auto said = [&](const char* option) {
    const CLI::Option* found = options.command->get_option_no_throw(option);
    return found != nullptr && found->count() > 0;
  };
  const std::string& method = options.method;
  if (options.command->get_name() == "gemv" && said("--k") && method != "k-tree")
    throw_error<InputError>("--k is the number of the K-tree's phases; --method {} has none", method);
  if (!is_baseline(method)) return;
  if (said("--sync"))
    throw_error<InputError>(
        "--sync is an option of WaferLLM's programs; in --method {} every core waits for its own data", method);
  if (said("--batch"))
    throw_error<InputError>("--batch is an option of WaferLLM's programs; --method {} takes one vector", method);
}

// Warns of sides with a large least common multiple: their cost, and a mesh within this one that avoids it.
std::vector<std::string> warnings_of(std::string_view product, const ProductOptions& options, const PlmrDevice& device,
                                     WaferMesh mesh) {
  const auto better = evener_mesh(mesh);
  if (product != "gemm" || is_baseline(options.method) || !better) return {};
  const GemmSize size = size_of(options);
  std::string instead;
  try {
    const double here = gemm_cost(device, size, mesh, WaferGemm::mesh_gemm).cycles();
    const double there = gemm_cost(device, size, *better, WaferGemm::mesh_gemm).cycles();
    instead = fmt::format("; {} takes {:.4g} times fewer cycles with MeshGEMM", text_of(*better), here / there);
  } catch (const InputError&) {  // tiles too large for the smaller mesh
  }
  return {gemm_steps_text(mesh) + instead};
}

// Of a GEMM whose steps were not played.
std::optional<mesh::CountedSteps> counted_steps(const ProductOptions& options, WaferMesh mesh) {
  const bool runs = options.command->get_name() == "gemm" && is_baseline(options.method) && is_simulated(options);
  return runs ? mesh::counted_gemm_steps(mesh, wafer_method(options.method)) : std::nullopt;
}

// Effects that the numbers do not include.
std::vector<std::string> notes_of(const ProductOptions& options, const PlmrDevice& device, WaferMesh mesh) {
  std::vector<std::string> notes;
  if (!is_baseline(options.method)) {
    const double trip = (mesh.width + mesh.height) * device.alpha_cycles.value + device.ramp_cycles.value;
    notes.push_back(fmt::format(
        "the model charges nothing for a barrier but waiting for the last core; a signal from all cores takes {:.0f} "
        "cycles a step, and as many back, in any program",
        trip));
  }
  if (is_baseline(options.method) && is_simulated(options)) {
    notes.emplace_back(
        "the run is a program on this mesh's words, hops and stages; nothing in it was fitted to the baseline's "
        "published figures, to which the analytical model was: what the paper's programs lose beside words, this mesh "
        "does not explain");
    if (std::max(mesh.width, mesh.height) > mesh::kEventSide)
      notes.push_back(fmt::format(
          "above {} cores a side words are counted on links and not played: each transfer takes its busiest link's "
          "words and then its longest path, and at least the longer of the two; on 16 to {} cores a side this is 1.0 "
          "to "
          "{:.2g} times what the words take one by one, on smaller meshes {:.2g} to {:.2g} times",
          mesh::kEventSide, mesh::kEventSide, mesh::kMostOverPlayedFrom16, mesh::kLeastOverPlayed,
          mesh::kMostOverPlayed));
    if (const auto steps = counted_steps(options, mesh); steps && steps->counted < steps->all)
      notes.push_back(
          fmt::format("of the program's {} steps {} counted and stand{} for all{}", steps->all,
                      steps->counted == 1 ? "one is" : fmt::format("{}, evenly spaced, are", steps->counted),
                      steps->counted == 1 ? "s" : "", steps->counted == 1 ? ", which are alike" : ""));
  }
  if (is_simulated(options) && !device.other_fits.empty())
    notes.emplace_back(
        "the costs of a multiply-accumulate, a call and a stage were fitted to WaferLLM's cells of tables 3, 4 and 6, "
        "and what they add is analytical; hops and words are the same run without them");
  if (device.other_fits.empty())
    notes.push_back(fmt::format("{}: no program was measured on it; its programs' constants are WSE-2's", device.name));
  return notes;
}

// "2048" where all are equal, else "64 x 4096 by 4096 x 1024".
std::string shape_text(GemmSize size, bool is_gemm) {
  if (size.k == size.n && size.m == (is_gemm ? size.n : 1)) return fmt::format("{}", size.n);
  return fmt::format("{} x {} by {} x {}", size.m, size.k, size.k, size.n);
}

using CostOf = WaferCost (*)(const ProductOptions&, const PlmrDevice&, WaferMesh, WaferSync);
// Of that cost; for the synchronisations that were not asked for.
using CyclesOf = double (*)(const ProductOptions&, const PlmrDevice&, WaferMesh, WaferSync);

void run_product(const char* product, const ProductOptions& options, WaferMesh usual_mesh, CostOf cost_of,
                 CyclesOf cycles_of) {
  refuse_unused_options(options);
  const PlmrDevice device = open_device(options.output);
  const WaferMesh mesh = options.mesh.value_or(mesh_on(device, usual_mesh));
  ordered_json object{{"product", product},    {"n", options.n},           {"device", device.name},
                      {"mesh", json_of(mesh)}, {"method", options.method}, {"timing", options.timing}};
  if (is_baseline(options.method))
    object["ignores_as_published"] = ignored_properties(wafer_method(options.method));
  else
    object["sync"] = options.sync;  // in a baseline every core waits for its own data
  const GemmSize size = size_of(options);
  const bool is_gemm = std::string_view(product) == "gemm";
  if (is_gemm) object["m"] = size.m;
  object["k"] = size.k;  // a GEMV is [batch, k] times [k, n]
  if (!is_gemm) object["batch"] = options.batch;
  if (!is_gemm && options.method == "k-tree") object["phases"] = options.phases;
  std::string text = line_text(
      product,
      fmt::format("{}, {} on {} of {}{}", shape_text({is_gemm ? size.m : options.batch, size.k, size.n}, is_gemm),
                  options.method, text_of(mesh), device.name, is_baseline(options.method) ? "" : ", " + options.sync));
  ordered_json by_sync = ordered_json::object(), basis;
  std::string sync_lines;
  const WaferCost cost = cost_of(options, device, mesh, wafer_sync(options.sync));
  object.update(json_of(device, cost));
  basis = basis_json(cost);
  text += text_of(device, cost);
  if (!is_baseline(options.method)) {
    for (const auto& [name, sync] : kSyncs) {
      const double cycles = name == options.sync ? cost.cycles() : cycles_of(options, device, mesh, sync);
      by_sync[name] = device.seconds(cycles) * 1e6;
      sync_lines += line_text(name, fmt::format("{:.4g} us, {:.0f} cycles", device.seconds(cycles) * 1e6, cycles));
    }
    object["microseconds_by_sync"] = by_sync;
    basis["microseconds_by_sync"] = basis["microseconds"];
  }
  if (is_simulated(options)) {
    object["hops_and_words_cycles"] = cost.hops_and_words();
    basis["hops_and_words_cycles"] = hops_and_words_basis(cost);
    sync_lines += line_text("hops and words",
                            fmt::format("{:.0f} cycles, {}", cost.hops_and_words(), hops_and_words_basis(cost)));
  }
  if (cost.at_least > 0) {
    object["at_least_cycles"] = cost.at_least;
    basis["at_least_cycles"] = basis["cycles"];
    sync_lines += line_text("at least", fmt::format("{:.0f} cycles: of each transfer the busiest link's words or the "
                                                    "longest path, whichever is more",
                                                    cost.at_least));
  }
  if (const auto steps = counted_steps(options, mesh))
    object["steps"] = {{"counted", steps->counted}, {"all", steps->all}};
  if (is_baseline(options.method) && is_simulated(options)) {
    ProductOptions by_fit = options;
    by_fit.timing = "closed";
    const WaferCost fitted = cost_of(by_fit, device, mesh, WaferSync::dataflow);
    const double fit = fitted.cycles(), run = cost.cycles();
    object["fitted_cycles"] = fit;
    object["run_over_fit"] = run / fit;
    basis["fitted_cycles"] = text_of(fitted.bases());
    basis["run_over_fit"] = text_of(fitted.bases() | cost.bases());
    sync_lines += line_text("fitted", fmt::format("{:.0f} cycles; the run takes {:.3g} times as many", fit, run / fit));
  }
  object["basis"] = basis;
  object["warnings"] = warnings_of(product, options, device, mesh);
  object["notes"] = notes_of(options, device, mesh);
  text += sync_lines + warning_lines(object["warnings"]);
  for (const std::string note : object["notes"]) text += line_text("note", note);
  write_wafer_result(options.output, device, object, text);
}

void add_product_options(CLI::App& command, ProductOptions& options, const std::vector<std::string>& methods,
                         const std::string& mesh_text) {
  options.command = &command;
  options.method = methods.front();
  add_number_option<std::int64_t>(command, "--n", options.n,
                                  "Columns of the result; the sides of all matrices where no other size is given",
                                  {.min = 1, .max = kMostSize})
      ->required();
  add_mesh_option(command, "--mesh", options.mesh, mesh_text);
  command
      .add_option("--method", options.method,
                  fmt::format("{} (default {})", CLI::detail::join(methods, ", "), methods.front()))
      ->check(CLI::IsMember(methods))
      ->type_name("NAME");
  command.add_option("--sync", options.sync, "How a step of all cores begins: dataflow (default), rendezvous, barrier")
      ->check(CLI::IsMember({"dataflow", "rendezvous", "barrier"}))
      ->type_name("NAME");
  command
      .add_option("--timing", options.timing,
                  "closed (default): the analytical model; simulated: the program on all cores of a simulated mesh")
      ->check(CLI::IsMember({"closed", "simulated"}))
      ->type_name("NAME");
  add_wafer_output_options(command, options.output);
}

constexpr std::array<ProductChoice<WaferGemm>, 5> kGemms{{
    {"meshgemm", WaferGemm::mesh_gemm},
    {"gemm-t", WaferGemm::gemm_t},
    {"summa", WaferGemm::summa},
    {"cannon", WaferGemm::cannon},
    {"all-gather", WaferGemm::all_gather},
}};

constexpr std::array<ProductChoice<WaferAllReduce>, 3> kAllReduces{{
    {"k-tree", WaferAllReduce::k_tree},
    {"pipeline", WaferAllReduce::pipeline},
    {"ring", WaferAllReduce::ring},
}};

template <class Value, std::size_t count>
std::vector<std::string> names_of(const std::array<ProductChoice<Value>, count>& choices) {
  std::vector<std::string> names;
  names.reserve(count);
  for (const ProductChoice<Value>& choice : choices) names.emplace_back(choice.name);
  return names;
}

template <class Value, std::size_t count>
Value find_choice(const std::array<ProductChoice<Value>, count>& choices, const std::string& name) {
  for (const ProductChoice<Value>& choice : choices)
    if (choice.name == name) return choice.value;
  throw_error<InvalidArgument>("no choice \"{}\"", name);
}

std::vector<std::string> with_baselines(std::vector<std::string> names) {
  names.insert(names.end(), {"t10", "ladder"});
  return names;
}

WaferCost gemm_by(const ProductOptions& options, const PlmrDevice& device, WaferMesh mesh, WaferSync sync) {
  const GemmSize size = size_of(options);
  if (is_baseline(options.method))
    return is_simulated(options) ? mesh::simulate_baseline_gemm(device, size, mesh, wafer_method(options.method))
                                 : gemm_cost(device, size, mesh, wafer_method(options.method));
  const WaferGemm method = find_choice(kGemms, options.method);
  const WaferCost closed = gemm_cost(device, size, mesh, method, sync);  // throws an error with a mesh that would do
  return is_simulated(options) ? mesh::simulate_gemm(device, size, mesh, method, sync) : closed;
}

double gemm_cycles_by(const ProductOptions& options, const PlmrDevice& device, WaferMesh mesh, WaferSync sync) {
  if (is_baseline(options.method) || !is_simulated(options)) return gemm_by(options, device, mesh, sync).cycles();
  return mesh::simulate_gemm_cycles(device, size_of(options), mesh, find_choice(kGemms, options.method), sync);
}

WaferCost gemv_by(const ProductOptions& options, const PlmrDevice& device, WaferMesh mesh, WaferSync sync) {
  const GemmSize size = size_of(options);
  if (is_baseline(options.method))
    return is_simulated(options)
               ? mesh::simulate_baseline_gemv(device, size.k, size.n, mesh, wafer_method(options.method))
               : gemv_cost(device, size.k, size.n, mesh, wafer_method(options.method));
  const AllReduceOptions all_reduce{
      .method = find_choice(kAllReduces, options.method), .phases = options.phases, .sync = sync};
  const WaferCost closed = gemv_cost(device, size.k, size.n, mesh, all_reduce, options.batch);
  return is_simulated(options) ? mesh::simulate_gemv(device, size.k, size.n, mesh, all_reduce, options.batch) : closed;
}

double gemv_cycles_by(const ProductOptions& options, const PlmrDevice& device, WaferMesh mesh, WaferSync sync) {
  return gemv_by(options, device, mesh, sync).cycles();
}

}  // namespace

void add_wafer_gemm(CLI::App& wafer) {
  const auto options = std::make_shared<ProductOptions>();
  CLI::App* command = wafer.add_subcommand("gemm", "Predict or simulate one GEMM, M x K by K x N");
  add_number_option<std::int64_t>(*command, "--m", options->m, "Rows of the result, as tokens or a batch; default N",
                                  {.min = 1, .max = kMostSize});
  add_number_option<std::int64_t>(*command, "--k", options->k, "Columns of the first matrix; default N",
                                  {.min = 1, .max = kMostSize});
  add_product_options(*command, *options, with_baselines(names_of(kGemms)),
                      "The cores; default 720, or the device's largest square");
  command->callback([options] { run_product("gemm", *options, kGemmMesh, gemm_by, gemm_cycles_by); });
}

void add_wafer_gemv(CLI::App& wafer) {
  const auto options = std::make_shared<ProductOptions>();
  CLI::App* command = wafer.add_subcommand("gemv", "Predict or simulate one GEMV: a vector by a matrix of M x N");
  add_number_option<std::int64_t>(*command, "--m", options->k, "Values of the vector, rows of the matrix; default N",
                                  {.min = 1, .max = kMostSize});
  add_product_options(*command, *options, with_baselines(names_of(kAllReduces)),
                      "The cores; default 750, or the device's largest square");
  add_number_option<int>(*command, "--batch", options->batch,
                         "Vectors, which a core multiplies one after the other and sums together; default 1",
                         {.min = 1, .max = 65536});
  add_number_option<int>(*command, "--k", options->phases, "Phases of the K-tree; default 2", {.min = 1, .max = 32});
  command->callback([options] { run_product("gemv", *options, kGemvMesh, gemv_by, gemv_cycles_by); });
}

}  // namespace heddle

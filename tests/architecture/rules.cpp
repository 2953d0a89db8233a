#include "architecture/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;

using ArrowTable = std::map<std::string, std::set<std::string>>;

const ArrowTable& arrows() {
  static const ArrowTable direct{
      {"apps", {"engine", "wafer/programs"}},
      {"heddle", {"engine"}},
      {"engine", {"models", "text/tokenizer", "text/chat_template", "text/grammar", "step", "weights"}},
      {"wafer/programs", {"models", "wafer/mesh"}},
      {"wafer/mesh", {"wafer/cost", "schedule", "machine"}},
      {"wafer/cost", {"schedule", "machine"}},
      {"models", {"layers", "step", "weights"}},
      {"layers", {"parallel", "step", "weights"}},
      {"parallel", {"fused", "collectives", "step", "weights", "machine"}},
      {"fused", {"fabric", "kernels", "step"}},
      {"collectives", {"fabric", "kernels", "machine"}},
      {"fabric", {"device", "schedule", "machine"}},
      {"kernels", {"kernels/cpu", "kernels/sm90"}},
      {"kernels/cpu", {"device"}},
      {"kernels/sm90", {"device"}},
      {"device", {"schedule"}},
      {"text/chat_template", {"base"}},
      {"text/grammar", {"text/tokenizer"}},
      {"text/tokenizer", {"base"}},
      {"weights", {"base"}},
      {"step", {"base"}},
      {"machine", {"base"}},
      {"schedule", {"base"}},
      {"base", {}},
  };
  return direct;
}

// Between the sub-folders of a module. The files of the module itself may include them all, and be included by all.
const ArrowTable& arrows_within_modules() {
  static const ArrowTable direct{
      {"kernels/attention", {"kernels/linear"}},
      {"kernels/linear", {"kernels/rows"}},
      {"kernels/moe", {"kernels/linear"}},
      {"fused/linear_all_reduce", {"fused/linear_reduce_scatter"}},
      {"fabric/hierarchical", {"fabric/mpi", "fabric/nvlink", "fabric/staged"}},
      {"fabric/mpi", {"fabric/shm"}},
      {"fabric/nvlink", {"fabric/shm"}},
  };
  return direct;
}

// The module of a folder: its longest prefix that has arrows; without any, the folder of src.
std::string module_of(const std::string& path) {
  const std::string folder = folder_of(path);
  for (std::string prefix = folder; !prefix.empty();) {
    if (arrows().contains(prefix)) return prefix;
    const std::size_t slash = prefix.rfind('/');
    prefix.resize(slash == std::string::npos ? 0 : slash);
  }
  return folder.substr(0, folder.find('/'));
}

// The folder and everything downstream of it.
std::set<std::string> reach(const ArrowTable& direct, const std::string& folder) {
  std::set<std::string> seen{folder};
  std::vector<std::string> open{folder};
  while (!open.empty()) {
    const auto from = direct.find(open.back());
    open.pop_back();
    if (from == direct.end()) continue;
    for (const std::string& to : from->second)
      if (seen.insert(to).second) open.push_back(to);
  }
  return seen;
}

// Whether the include is from one sub-folder of a module to another one without an arrow.
bool leaves_its_subfolder(const std::string& parent, const std::string& from, const std::string& to) {
  return from != parent && to != parent && !reach(arrows_within_modules(), from).contains(to);
}

std::string fault(const std::string& file, const Include& include, std::string_view why) {
  return fmt::format("{}:{}: #include {}: {}", file, include.line, include.text, why);
}

bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool is_cuda_header(std::string_view name) {
  return begins_with_any(name, {"cuda", "cooperative_groups", "cub/", "thrust/", "cutlass/", "cute/", "mma.h", "nvtx3/",
                                "vector_types.h", "device_launch_parameters.h"});
}

bool is_communication_header(std::string_view name) {
  return begins_with_any(name, {"nccl", "mpi.h", "mpi/", "nvshmem"});
}

// The include chain from `file` to a CUDA header, "a.h -> b.h -> cuda.h"; empty if there is none.
std::string way_to_cuda(const SourceTree& tree, const std::string& file, std::set<std::string>& seen) {
  const auto found = tree.find(file);
  if (found == tree.end() || !seen.insert(file).second) return {};
  for (const Include& include : found->second) {
    if (include.target.empty()) {
      if (is_cuda_header(include.name)) return file + " -> " + include.name;
    } else if (const std::string way = way_to_cuda(tree, include.target, seen); !way.empty()) {
      return file + " -> " + way;
    }
  }
  return {};
}

bool holds_a_file(const fs::path& folder) {
  return std::ranges::any_of(fs::recursive_directory_iterator(folder),
                             [](const fs::directory_entry& entry) { return entry.is_regular_file(); });
}

}  // namespace

Faults check_directions(const SourceTree& tree) {
  Faults faults;
  for (const auto& [file, includes] : tree) {
    const std::string from = module_of(file);
    if (from.empty()) continue;
    if (!arrows().contains(from)) {
      faults.push_back(fmt::format("{}: {} is not a module of docs/architecture.md", file, from));
      continue;
    }
    const std::set<std::string> allowed = reach(arrows(), from);
    for (const Include& include : includes) {
      if (include.target.empty()) continue;
      const std::string to = module_of(include.target);
      if (to == from && leaves_its_subfolder(from, folder_of(file), folder_of(include.target)))
        faults.push_back(
            fault(file, include, fmt::format("{} -> {} is no arrow", folder_of(file), folder_of(include.target))));
      if (allowed.contains(to)) continue;
      const std::string arrow = to.empty() ? include.target + ", which is in no module" : to;
      const bool upward = arrows().contains(to) && reach(arrows(), to).contains(from);
      faults.push_back(
          fault(file, include, fmt::format("{} -> {}{}", from, arrow, upward ? " runs upwards" : " is no arrow")));
    }
  }
  return faults;
}

Faults check_resolution(const SourceTree& tree) {
  Faults faults;
  for (const auto& [file, includes] : tree)
    for (const Include& include : includes) {
      if (include.text.empty())
        faults.push_back(fmt::format("{}:{}: an include that names no header", file, include.line));
      else if (include.quoted && include.target.empty())
        faults.push_back(fault(file, include, "no such file of ours (a library's header stands in <>)"));
    }
  return faults;
}

Faults check_operator_headers(const SourceTree& tree) {
  Faults faults;
  for (const auto& [file, includes] : tree) {
    const std::string folder = folder_of(file);
    const std::string_view module = std::string_view(folder).substr(0, folder.find('/'));
    if (!file.ends_with(".h") || (module != "kernels" && module != "fused" && module != "collectives")) continue;
    std::set<std::string> seen;
    if (const std::string way = way_to_cuda(tree, file, seen); !way.empty())
      faults.push_back(fmt::format("{}: an operator's header leads to CUDA's: {}", file, way));
  }
  return faults;
}

Faults check_communication_headers(const SourceTree& tree) {
  Faults faults;
  for (const auto& [file, includes] : tree) {
    if (module_of(file).empty()) continue;
    constexpr std::string_view kFabric = "src/fabric/";
    const bool inside = file.starts_with(kFabric) && file.find('/', kFabric.size()) != std::string::npos;
    for (const Include& include : includes)
      if (!inside && include.target.empty() && is_communication_header(include.name))
        faults.push_back(fault(file, include, "stands outside of src/fabric/<name>/"));
  }
  return faults;
}

Faults check_readmes(const fs::path& root) {
  constexpr std::array<std::string_view, 6> kTops{"src", "apps", "tests", "bench", "tools", "docs"};
  Faults faults;
  for (const std::string_view top : kTops) {
    if (!fs::is_directory(root / top)) continue;
    for (const auto& entry : fs::directory_iterator(root / top)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_directory() || name.starts_with('.') || name == "__pycache__" || !holds_a_file(entry.path()))
        continue;
      if (!fs::is_regular_file(entry.path() / "README.md"))
        faults.push_back(fmt::format("{}/{}: has no README.md that says what it is for", top, name));
    }
  }
  std::ranges::sort(faults);
  return faults;
}

}  // namespace heddle::architecture

#include "cli/launched.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "engine/rank_group.h"
#include "fabric/launch.h"
#include "weights/model_folder.h"

namespace heddle {
namespace {

class Digest {
 public:
  void add(std::string_view bytes) {  // FNV-1a
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

std::string program_digest() {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  Digest digest;
  digest.add(read_file("/proc/self/exe", kMostBytes));
  return digest.text();
}

// Names, dtypes and shapes; the contents are not read.
std::string tensors_digest(const ModelSource& source) {
  Digest digest;
  for (const std::string_view name : source.names()) {
    const TensorInfo& tensor = *source.find(name);
    digest.add(fmt::format("{} {} {};", name, tensor.dtype.name, shape_text(tensor.shape)));
  }
  return digest.text();
}

std::string config_digest(const ModelSource& source) {
  Digest digest;
  digest.add(source.config().value().dump());
  return digest.text();
}

// The first bytes of each tensor and the last ones, which tell models of one shape from each other: what is trained
// differs everywhere.
std::string contents_digest(const ModelSource& source) {
  constexpr std::size_t kBytes = 64;
  Digest digest;
  const auto text_of = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const std::string_view name : source.names()) {
    const TensorInfo& tensor = *source.find(name);
    if (tensor.size_bytes == 0) continue;
    const std::int64_t num_rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    const std::size_t row_bytes = tensor.size_bytes / static_cast<std::size_t>(num_rows);
    const std::int64_t rows =
        row_bytes == 0 ? num_rows
                       : std::clamp<std::int64_t>(static_cast<std::int64_t>(kBytes / row_bytes), 1, num_rows);
    const TensorRows first = source.rows(name, 0, rows), last = source.rows(name, num_rows - rows, rows);
    digest.add(text_of(first.bytes.first(std::min(kBytes, first.bytes.size()))));
    digest.add(text_of(last.bytes.last(std::min(kBytes, last.bytes.size()))));
  }
  return digest.text();
}

template <class Number>
std::string number_or_default(const std::optional<Number>& number) {
  return number ? fmt::to_string(*number) : "default";
}

}  // namespace

int num_launched_ranks() {
  return started_by_mpirun() ? read_launch().world_size : 1;
}

bool followed(const ModelOptions& options) {
  if (num_launched_ranks() == 1 || read_launch().rank == 0) return false;
  std::signal(SIGINT, SIG_IGN);  // rank 0 decides when to end
  const std::unique_ptr<ModelSource> source = open_model(options.model);
  ModelOptions silent = options;
  silent.quiet = true;
  silent.verbose = false;
  EngineOptions engine;
  RankModels ranks = load(*source, silent, engine);
  follow(std::move(ranks), engine.threads);
  return true;
}

void require_no_run(std::string_view command) {
  if (num_launched_ranks() > 1)
    throw_error<InputError>("heddle {} does not run on the processes of heddle launch; --tp N has ranks in one process",
                            command);
}

std::vector<RankFact> given_options(const CLI::App& command) {
  constexpr std::array<std::string_view, 13> kNotCompared{
      "--model",   "model",     "--threads", "--verbose", "--quiet",     "--help",         "--dtype",
      "--compute", "--tp-mode", "--context", "--device",  "--kv-memory", "--max-sequences"};
  constexpr std::size_t kMostShown = 60;  // of a value; the rest of it as a digest
  std::vector<RankFact> given{{"command", command.get_name()}};
  const auto add = [&](const auto& self, const CLI::App& options) -> void {
    for (const CLI::Option* option : options.get_options()) {
      const std::string name = option->get_name();
      if (option->count() == 0 || std::ranges::find(kNotCompared, name) != kNotCompared.end()) continue;
      std::string value = fmt::format("{}", fmt::join(option->results(), " "));
      if (value.size() > kMostShown) {
        Digest digest;
        digest.add(value);
        value = fmt::format("{}... ({})", value.substr(0, kMostShown), digest.text());
      }
      given.push_back({name, std::move(value)});
    }
    for (const CLI::App* group : options.get_subcommands({}))
      if (group->get_name().empty()) self(self, *group);
  };
  add(add, command);
  return given;
}

std::vector<RankFact> facts_of(const ModelSource& source, const ModelOptions& options) {
  std::vector<RankFact> facts{{"heddle", HEDDLE_VERSION},
                              {"program", program_digest()},
                              {"config.json", config_digest(source)},
                              {"tensors", tensors_digest(source)},
                              {"weights", contents_digest(source)},
                              {"--dtype", options.dtype ? std::string(name_of(*options.dtype)) : "auto"},
                              {"--compute", options.compute == Compute::float32 ? "float32" : "auto"},
                              {"--tp-mode", std::string(name_of(options.tp_mode))},
                              {"--context", number_or_default(options.context)},
                              {"--kv-memory", number_or_default(options.kv_bytes)},
                              {"--max-sequences", number_or_default(options.max_sequences)}};
  for (const RankFact& given : options.given) {
    if (facts.size() < kMostRankFacts) {
      facts.push_back(given);
      continue;
    }
    Digest others;  // so many options that their values do not fit
    others.add(facts.back().value + given.name + given.value);
    facts.back() = {"other options", others.text()};
  }
  return facts;
}

}  // namespace heddle

// heddle synth: writes a synthetic model as a folder that transformers and compatible programs can load.
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/synth_folder.h"
#include "weights/checkpoint_write.h"
#include "weights/shapes.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

struct SynthOptions {
  std::string name;
  std::string out;
  std::string layers;
  std::string dtype;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
};

// With or without a leading "synth:"; the options are an alternative to its suffix.
SyntheticName name_of(const SynthOptions& options) {
  std::string text = options.name.starts_with("synth:") ? options.name : "synth:" + options.name;
  if (!options.layers.empty()) text += ",layers=" + options.layers;
  if (!options.dtype.empty()) text += ",dtype=" + options.dtype;
  return *parse_synthetic_name(text);
}

// A folder that gets its final name when it is complete. Without commit() it is removed.
class PendingFolder {
 public:
  // Throws InputError when `path` exists, unless it is an empty folder; Failure when it cannot be created.
  explicit PendingFolder(const fs::path& path) : path_(path) {
    std::error_code error;
    const fs::file_status status = fs::status(path_, error);
    if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(path_, error)))
      throw_error<InputError>("--out: {} exists; give the name of a new folder, or of an empty one", path_.string());
    const fs::path parent = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
    if (!fs::is_directory(parent, error))
      throw_error<InputError>("--out: {} is no folder to put {} into", parent.string(), path_.filename().string());
    temporary_ = path_;
    temporary_ += fmt::format(".{}.tmp", ::getpid());
    if (!fs::create_directory(temporary_, error))
      throw_error<Failure>("{}: cannot make this folder: {}", temporary_.string(),
                           error ? error.message() : "it exists");
  }
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(temporary_, ignored);
  }

  const fs::path& path() const { return temporary_; }

  void commit() {
    std::error_code error;
    fs::rename(temporary_, path_, error);
    if (error) throw_error<Failure>("{}: cannot make this folder: {}", path_.string(), error.message());
    committed_ = true;
  }

 private:
  fs::path path_;
  fs::path temporary_;
  bool committed_ = false;
};

void run(const SynthOptions& options) {
  const SyntheticModel model(name_of(options));
  fs::path out = options.out;
  if (!out.has_filename()) out = out.parent_path();  // "folder/"
  const InterruptGuard interrupt;
  PendingFolder folder(out);
  write_synthetic_folder(model, folder.path(), options.max_shard_bytes, interrupt);
  folder.commit();
  write_stderr(fmt::format("heddle: {} is in {} ({})\n", model.where(), out.string(), size_text(model.total_bytes())));
}

}  // namespace

void add_synth(CLI::App& app) {
  const auto options = std::make_shared<SynthOptions>();
  CLI::App* command = app.add_subcommand("synth", "Write a model of random weights with the shape of a real one");
  std::vector<std::string_view> names;
  names.reserve(kKnownShapes.size());
  for (const KnownShape& shape : kKnownShapes) names.push_back(shape.name);
  command
      ->add_option("name", options->name,
                   "llama-3.2-1b or another name of those below; ,layers=N and ,dtype=D may follow")
      ->required()
      ->type_name(fmt::format("TEXT:{{{}}}", fmt::join(names, ",")))  // for the shells
      ->option_text("TEXT REQUIRED");
  command->add_option("--out", options->out, "The folder to make")->required()->type_name("DIR");
  command->add_option("--layers", options->layers, "The first N layers only")->type_name("N");
  command->add_option("--dtype", options->dtype, "float32, bfloat16 or float16; default: the real model's");
  command
      ->add_option("--max-shard-size", options->max_shard_bytes,
                   "Where a new file of weights begins: 500MB, 5GB (default), 2GiB")
      ->transform(CLI::AsSizeValue(true))
      ->transform(CLI::Validator(  // runs before the one above, which reads -1 as the largest number
          [](std::string& size) { return size.starts_with('-') ? "expected a size, not " + size : std::string(); }, ""))
      ->option_text("SIZE");
  command->footer(
      fmt::format("The names are {}.\n"
                  "Every command that takes a model takes such a name without a folder, too: heddle generate "
                  "synth:llama-3.2-1b,layers=4 --prompt x",
                  fmt::join(names, ", ")));
  command->callback([options] { run(*options); });
}

}  // namespace heddle

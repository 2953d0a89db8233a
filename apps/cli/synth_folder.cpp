#include "cli/synth_folder.h"

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "engine/synthetic_tokenizer.h"
#include "weights/checkpoint_write.h"

namespace heddle {
namespace {

void check_space(const std::filesystem::path& folder, std::uintmax_t needed) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= needed) return;  // if unknown, writing will fail instead
  throw_error<Failure>("{}: {} are needed and {} are free; {} are missing", folder.parent_path().string(),
                       size_text(needed), size_text(space.available), size_text(needed - space.available));
}

}  // namespace

void write_synthetic_folder(const SyntheticModel& model, const std::filesystem::path& folder,
                            std::uint64_t max_shard_bytes, const InterruptGuard& interrupt) {
  const TokenizerFiles tokenizer = synthetic_tokenizer(*model.name().shape);
  check_space(folder, model.total_bytes() + tokenizer.tokenizer_json.size() + (1 << 20));
  write_file(folder / "tokenizer.json", tokenizer.tokenizer_json);
  write_file(folder / "tokenizer_config.json", tokenizer.tokenizer_config_json);
  Progress progress("writing", model.total_bytes());
  write_checkpoint(model, folder, {.max_shard_bytes = max_shard_bytes, .on_progress = [&](std::size_t done) {
                                     if (interrupt.interrupted()) throw Interrupted{interrupt.signal()};
                                     progress.update(done);
                                   }});
}

}  // namespace heddle

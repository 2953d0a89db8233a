// The tokenizer of a synthetic model: a byte-level BPE with as many tokens as the model, as Hugging Face's files.
#pragma once

#include <string>

#include "weights/shapes.h"

namespace heddle {

struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};

// Every id below vocab_size is a token with a text of its own: special tokens where the model's config.json has bos and
// eos, the 256 bytes, some merges of frequent letters, and synthetic words that encoding never produces. Families whose
// real tokenizers begin with bos do so here; Qwen's split and normalize text as the real ones do. The chat template is
// ChatML.
TokenizerFiles synthetic_tokenizer(const KnownShape& shape);

}  // namespace heddle

// The tokenizer of a synthetic model: a byte-level BPE with as many tokens as the model has, in Hugging Face's files.
#pragma once

#include <string>

#include "weights/shapes.h"

namespace heddle {

struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};

// Every id below vocab_size is a token with a text of its own: special tokens where the model's config.json has bos and
// eos, the 256 bytes, some merges of frequent letters, and made-up words that encoding never produces. The families
// whose real tokenizers begin a text with bos do so here; Qwen's cut and normalize text as the real ones. The chat
// template is ChatML.
TokenizerFiles synthetic_tokenizer(const KnownShape& shape);

}  // namespace heddle

// Text to token ids and back, as Hugging Face's tokenizer.json describes it, with the same results as their
// `tokenizers`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class DecoderRun;

// Whether encode adds the post-processor's tokens (one at the beginning, say).
enum class SpecialTokens { add, omit };

// Whether decode keeps special tokens or skips them.
enum class Specials { keep, skip };

// Immutable and thread-safe; cheap to copy (copies share one state).
class Tokenizer {
 public:
  // Reads tokenizer.json of `folder` and, if it exists, tokenizer_config.json. Throws InputError that names file and
  // field when something is malformed or unsupported. Limits: README.md of this folder.
  static Tokenizer load(const std::filesystem::path& folder);

  // The same from the texts of tokenizer.json and tokenizer_config.json (empty: there is none). `where` names the
  // source in errors.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                             std::string_view where);

  // Added and special tokens in `text` become their ids. Throws InputError with the byte offset when `text` is not
  // valid UTF-8, when it is longer than 256 MiB, or when a regular expression of the tokenizer exceeds its time on it.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special_tokens = SpecialTokens::add) const;

  // The same for a text of which a stranger wrote parts. `guarded`: ascending offsets of bytes in it; no special token
  // matches a string with such a byte, which is then encoded as ordinary text. One guarded byte in each occurrence of a
  // special token is enough. Special tokens that match the normalized text alone match nowhere if any byte is guarded.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special_tokens,
                                   std::span<const std::size_t> guarded) const;

  // Bytes that are not UTF-8 become U+FFFD. An unused id below vocab_size() gives no text; throws InputError for an id
  // outside [0, vocab_size()).
  std::string decode(std::span<const std::int32_t> ids, Specials specials = Specials::keep) const;

  // The largest id + 1, including added tokens. A model's own vocabulary may be larger (padding).
  std::int32_t vocab_size() const;

  std::optional<std::int32_t> id_of(std::string_view token) const;

  // False for an id outside the vocabulary.
  bool is_special(std::int32_t id) const;

  // The decoded text of this token alone; for a special token its content. Throws as decode does.
  std::string token_text(std::int32_t id) const;

  // The bytes that this token adds to a text behind its first token; they need not be UTF-8 by themselves. Nothing for a
  // special token and for an unused id. Throws as decode does, and InputError when the decoder makes the bytes of a token
  // depend on others.
  std::optional<std::string> token_bytes(std::int32_t id) const;

  // From tokenizer_config.json.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;

  // Settings of tokenizer.json that encode ignores: "truncation", "padding". (transformers applies them on request.)
  std::span<const std::string_view> settings_not_applied() const;
  // Tokens that tokenizer_config.json (added_tokens_decoder) or added_tokens.json lists and tokenizer.json does not;
  // transformers would add them.
  std::span<const std::string> tokens_left_out() const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

// Decodes ids one by one and holds back bytes that may still become a character. The joined results of push and finish
// equal decode() of all ids. For one sequence and one thread.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, Specials specials);
  StreamDecoder(const StreamDecoder& other);
  StreamDecoder(StreamDecoder&& other) noexcept;
  StreamDecoder& operator=(StreamDecoder other) noexcept;
  ~StreamDecoder();

  // Returns the text that became final, often empty. Throws as decode does.
  std::string push(std::int32_t id);

  // Returns the rest: U+FFFD for an incomplete character. Resets the decoder.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  Specials specials_;
  std::unique_ptr<DecoderRun> run_;
};

}  // namespace heddle

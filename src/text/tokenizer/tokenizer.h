// Text to token ids and back, as Hugging Face's tokenizer.json describes it and exactly as their `tokenizers` does it.
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

// Whether encode adds what the post-processor asks for (a token at the beginning, say).
enum class SpecialTokens { add, omit };

// Whether decode keeps special tokens or leaves them out.
enum class Specials { keep, skip };

// Immutable; cheap to copy (copies share one state); every member may be called from several threads at once.
class Tokenizer {
 public:
  // Reads tokenizer.json of `folder` and, where it exists, tokenizer_config.json. Throws InputError that names file and
  // field for what is malformed or not supported. Limits: README.md of this folder.
  static Tokenizer load(const std::filesystem::path& folder);

  // The same from the texts of tokenizer.json and tokenizer_config.json; the latter may be empty: there is none.
  // `where` stands for the folder in the errors.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                             std::string_view where);

  // Added and special tokens that stand in `text` become their ids. Throws InputError with the byte offset when `text`
  // is not valid UTF-8, when it is longer than 256 MiB, or when a regular expression of the tokenizer exceeds its time
  // on it.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special_tokens = SpecialTokens::add) const;

  // Bytes that are not UTF-8 become U+FFFD. An unused id below vocab_size() gives nothing; throws InputError for an id
  // outside [0, vocab_size()).
  std::string decode(std::span<const std::int32_t> ids, Specials specials = Specials::keep) const;

  // The largest id + 1, added tokens included. A model's own vocabulary may be larger (padding).
  std::int32_t vocab_size() const;

  std::optional<std::int32_t> id_of(std::string_view token) const;

  // False for an id outside the vocabulary.
  bool is_special(std::int32_t id) const;

  // What this token alone decodes to; a special token's own content. Throws as decode does.
  std::string token_text(std::int32_t id) const;

  // From tokenizer_config.json.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;

  // What tokenizer.json asks for and encode does not do: "truncation", "padding". (transformers does it when asked.)
  std::span<const std::string_view> settings_not_applied() const;
  // Tokens that tokenizer_config.json (added_tokens_decoder) or added_tokens.json lists and tokenizer.json does not:
  // transformers would add them.
  std::span<const std::string> tokens_left_out() const;

 private:
  friend class StreamDecoder;
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
};

// Decodes ids as they come and holds back bytes that may yet become a character. What push and finish return, joined,
// is decode() of all ids. For one sequence and one thread.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, Specials specials);
  StreamDecoder(const StreamDecoder& other);
  StreamDecoder(StreamDecoder&& other) noexcept;
  StreamDecoder& operator=(StreamDecoder other) noexcept;
  ~StreamDecoder();

  // The text that became certain, often empty. Throws as decode does.
  std::string push(std::int32_t id);

  // What was held back: U+FFFD for an incomplete character. The decoder is then as new.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  Specials specials_;
  std::unique_ptr<DecoderRun> run_;
};

}  // namespace heddle

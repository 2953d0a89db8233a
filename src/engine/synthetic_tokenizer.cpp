#include "engine/synthetic_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::string_view kTurnBegin = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kChatTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// GPT-2's pattern that splits text into words.
constexpr std::string_view kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Qwen's. transformers 5 gives every qwen2 model this pattern, NFC and a token of that name, whatever tokenizer.json
// says; another tokenizer would behave differently there.
constexpr std::string_view kQwenWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwenText = "<|endoftext|>";

// Merges by rank, ordered by frequency in English. "_" is the space before a word.
constexpr auto kMerges = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"_", "t"},    {"h", "e"},   {"_", "a"},    {"i", "n"},  {"_t", "he"}, {"r", "e"},   {"o", "n"},    {"_", "s"},
    {"e", "r"},    {"n", "d"},   {"_", "w"},    {"a", "t"},  {"_", "o"},   {"_", "c"},   {"e", "n"},    {"i", "s"},
    {"o", "r"},    {"i", "t"},   {"_", "b"},    {"e", "d"},  {"_", "f"},   {"in", "g"},  {"o", "u"},    {"_", "p"},
    {"a", "n"},    {"a", "l"},   {"a", "r"},    {"_o", "f"}, {"_", "m"},   {"_", "in"},  {"e", "s"},    {"_", "d"},
    {"_a", "nd"},  {"_t", "o"},  {"l", "e"},    {"r", "o"},  {"i", "c"},   {"_", "h"},   {"i", "on"},   {"s", "t"},
    {"_th", "at"}, {"e", "l"},   {"_", "l"},    {"_", "n"},  {"a", "s"},   {"v", "e"},   {"_", "re"},   {"e", "t"},
    {"_i", "s"},   {"o", "m"},   {"_b", "e"},   {"_", "g"},  {"u", "t"},   {"l", "l"},   {"i", "d"},    {"o", "t"},
    {"c", "h"},    {"i", "l"},   {"_f", "or"},  {"s", "e"},  {"_", "e"},   {"l", "y"},   {"c", "e"},    {"_h", "e"},
    {"u", "r"},    {"_w", "h"},  {"t", "er"},   {"a", "m"},  {"_", "it"},  {"_w", "as"}, {"_", "on"},   {"at", "ion"},
    {"a", "y"},    {"ver", "y"}, {"_w", "ith"}, {"i", "m"},  {"_y", "ou"}, {"_a", "s"},  {"ent", "er"}, {"k", "e"},
    {"i", "g"},    {"ou", "ld"}, {"_s", "t"},   {"_a", "n"}, {"u", "s"},   {"a", "d"},   {"i", "r"},    {"g", "h"},
    {"_k", "n"},   {"u", "n"},   {"o", "w"},
});

// Byte-level BPE writes a printable byte as itself, others as a code point from 256 on.
std::array<std::string, 256> byte_letters() {
  std::array<std::string, 256> letters;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int code = printable ? byte : next++;
    std::string& letter = letters[static_cast<std::size_t>(byte)];
    if (code < 0x80) {
      letter = static_cast<char>(code);
    } else {  // below 0x800: two bytes
      letter = static_cast<char>(0xc0 | (code >> 6));
      letter += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return letters;
}

// A word of three syllables for each number below 10^6.
void append_word(std::size_t number, std::string& text) {
  constexpr std::string_view kConsonants = "bcdfghjklmnprstvwxyz";
  constexpr std::string_view kVowels = "aeiou";
  for (int syllable = 0; syllable < 3; ++syllable, number /= 100) {
    text += kConsonants[number % 100 / 5];
    text += kVowels[number % 5];
  }
}

bool is_qwen(const KnownShape& shape) {
  return shape.family == Family::qwen2 || shape.family == Family::qwen3;
}

// The special tokens by id; ChatML's use the last two free ids.
std::map<std::int32_t, std::string> special_tokens(const KnownShape& shape) {
  std::map<std::int32_t, std::string> tokens;
  if (is_qwen(shape)) tokens.emplace(shape.bos_id, kQwenText);
  int num_eos = 0;
  for (const std::int32_t id : eos_ids_of(shape))
    tokens.emplace(id, ++num_eos == 1 ? "<|end|>" : "<|end_" + std::to_string(num_eos) + "|>");
  tokens.emplace(shape.bos_id, "<|begin|>");
  auto id = static_cast<std::int32_t>(shape.vocab_size) - 1;
  for (const std::string_view token : {kTurnEnd, kTurnBegin}) {
    while (tokens.contains(id)) --id;
    tokens.emplace(id, token);
  }
  return tokens;
}

// Whether encoding begins with bos.
bool adds_bos(const KnownShape& shape) {
  return !is_qwen(shape);
}

// The texts of ordinary ids, in order, and the merges that produce some of them.
struct Vocabulary {
  std::vector<std::string> tokens;
  json merges = json::array();
};

Vocabulary make_vocabulary(std::size_t count) {
  Vocabulary vocabulary;
  const auto letters = byte_letters();
  const std::string& space = letters[' '];
  std::set<std::string, std::less<>> known;
  const auto add = [&](const std::string& token) {
    const bool is_new = known.insert(token).second;
    if (is_new) vocabulary.tokens.push_back(token);
    return is_new;
  };
  for (const std::string& letter : letters) add(letter);
  const auto spelled = [&](std::string_view text) {
    return text.starts_with('_') ? space + std::string(text.substr(1)) : std::string(text);
  };
  for (const auto& [left, right] : kMerges) {
    const std::string first = spelled(left);
    const std::string second = spelled(right);
    if (!known.contains(first) || !known.contains(second) || !add(first + second)) continue;
    vocabulary.merges.push_back({first, second});
  }
  vocabulary.tokens.reserve(count);
  for (std::size_t number = 0; vocabulary.tokens.size() < count; ++number) {
    std::string word = space;
    append_word(number, word);
    vocabulary.tokens.push_back(std::move(word));  // no merge produces words this long
  }
  return vocabulary;
}

// By hand: an nlohmann::json with 150 000 members takes longer to build than to parse.
std::string vocab_text(const Vocabulary& vocabulary, const std::map<std::int32_t, std::string>& special) {
  std::string text = "{";
  std::int32_t id = 0;
  const auto add = [&](std::string_view token) {
    if (text.size() > 1) text += ',';
    text += '"';
    for (const char c : token) {
      if (c == '"' || c == '\\') text += '\\';  // tokens hold no control characters
      text += c;
    }
    text += "\":";
    text += std::to_string(id++);
  };
  for (const std::string& token : vocabulary.tokens) {
    for (auto found = special.find(id); found != special.end(); found = special.find(id)) add(found->second);
    add(token);
  }
  for (auto found = special.find(id); found != special.end(); found = special.find(id)) add(found->second);
  return text + "}";
}

json post_processor(const KnownShape& shape, const std::string& bos) {
  json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  if (!adds_bos(shape)) return byte_level;
  const auto token = [&](int type) { return json{{"SpecialToken", {{"id", bos}, {"type_id", type}}}}; };
  const auto sequence = [](const char* id, int type) { return json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", {token(0), sequence("A", 0)}},
          {"pair", {token(0), sequence("A", 0), token(1), sequence("B", 1)}},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {shape.bos_id}}, {"tokens", {bos}}}}}}};
}

}  // namespace

TokenizerFiles synthetic_tokenizer(const KnownShape& shape) {
  const auto special = special_tokens(shape);
  const Vocabulary vocabulary = make_vocabulary(static_cast<std::size_t>(shape.vocab_size) - special.size());
  const std::string& bos = special.at(shape.bos_id);
  const std::string& eos = special.at(shape.eos_ids.front());

  json added = json::array();
  for (const auto& [id, token] : special)
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const std::string words(is_qwen(shape) ? kQwenWords : kWords);
  const json split{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const json rest{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added},
                  {"normalizer", is_qwen(shape) ? json{{"type", "NFC"}} : json()},
                  {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
                  {"post_processor", post_processor(shape, bos)},
                  {"decoder", byte_level}};
  const json model{{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"merges", vocabulary.merges}};
  // {...rest, "model": {...model, "vocab": {...}}}
  const auto opened = [](const json& object) {
    std::string text = object.dump();
    text.back() = ',';
    return text;
  };
  TokenizerFiles files;
  files.tokenizer_json =
      opened(rest) + "\"model\":" + opened(model) + "\"vocab\":" + vocab_text(vocabulary, special) + "}}\n";
  files.tokenizer_config_json = json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                     {"bos_token", bos},
                                     {"eos_token", eos},
                                     {"add_prefix_space", false},
                                     {"clean_up_tokenization_spaces", false},
                                     {"model_max_length", shape.max_position},
                                     {"chat_template", std::string(kChatTemplate)}}
                                    .dump(2) +
                                "\n";
  return files;
}

}  // namespace heddle

#include "text/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_table.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

constexpr std::string_view kTokenizerName = "tokenizer.json";
constexpr std::string_view kConfigName = "tokenizer_config.json";
constexpr std::string_view kAddedTokensName = "added_tokens.json";
constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxEncodeBytes = std::size_t{256} << 20;

// An element that may be missing or null; it then does nothing.
template <class Element, class... Rest>
Element read_element(const JsonField& root, std::string_view key, const Rest&... rest) {
  const auto field = root.find(key);
  return field ? Element(*field, rest...) : Element();
}

}  // namespace

struct Tokenizer::State {
  Bpe model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  AddedTokens added_tokens;
  TokenTable contents;  // model and added tokens
  PostProcessor post_processor;
  std::unordered_map<std::string_view, std::int32_t> added_ids;  // views of added_tokens
  std::vector<bool> special;                                     // [vocab_size]
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  std::vector<std::string_view> not_applied;
  std::vector<std::string> left_out;

  explicit State(const JsonField& root);
  static std::shared_ptr<State> read(std::string_view tokenizer_json, std::string_view config_json,
                                     const std::filesystem::path& where);
  void read_config(const JsonField& root);
  void read_added_tokens(const JsonField& root);
  void note_added(const std::string& content);

  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_token(std::int32_t id) const { return id >= 0 && id < contents.size() && !contents[id].empty(); }
  void check_id(std::int32_t id) const;
  // Appends the text that becomes final with `id`.
  void append(std::int32_t id, Specials specials, DecoderRun& run, std::string& text) const;
};

Tokenizer::State::State(const JsonField& root)
    : model(root.at("model")),
      normalizer(read_element<Normalizer>(root, "normalizer")),
      pre_tokenizer(read_element<PreTokenizer>(root, "pre_tokenizer")),
      decoder(read_element<Decoder>(root, "decoder")),
      added_tokens(read_element<AddedTokens>(root, "added_tokens", model, normalizer)) {
  std::vector<TokenTable::Entry> entries;
  for (std::int32_t id = 0; id < model.tokens().size(); ++id)
    if (!model.tokens()[id].empty()) entries.push_back({id, std::string(model.tokens()[id])});
  for (const AddedToken& token : added_tokens.list()) {
    entries.push_back({token.id, token.text});
    added_ids.emplace(token.content, token.id);
  }
  contents = TokenTable(std::move(entries));
  if (contents.size() == 0) root.at("model").at("vocab").fail("the vocabulary is empty");

  special.resize(static_cast<std::size_t>(contents.size()));
  // A token is special by its decoded text, as in `tokenizers`.
  std::set<std::string_view> special_contents;
  for (const AddedToken& token : added_tokens.list())
    if (token.special) special_contents.insert(token.content);
  for (const AddedToken& token : added_tokens.list())
    special[static_cast<std::size_t>(token.id)] = special_contents.contains(token.text);
  post_processor = read_element<PostProcessor>(
      root, "post_processor", std::function<bool(std::int32_t)>([&](auto id) { return is_token(id); }));
  for (const std::string_view setting : {"truncation", "padding"})
    if (root.find(setting)) not_applied.push_back(setting);
}

std::optional<std::int32_t> Tokenizer::State::id_of(std::string_view token) const {
  const auto added = added_ids.find(token);
  return added == added_ids.end() ? model.id_of(token) : std::optional(added->second);
}

void Tokenizer::State::read_config(const JsonField& root) {
  const auto read_token = [&](std::string_view key) -> std::optional<std::int32_t> {
    const auto field = root.find(key);
    if (!field) return std::nullopt;
    const JsonField content = field->is_object() ? field->at("content") : *field;
    const auto id = id_of(content.text());
    if (!id) content.fail(fmt::format("{} is not a token of tokenizer.json", shorten(content.value())));
    return id;
  };
  bos_id = read_token("bos_token");
  eos_id = read_token("eos_token");
  if (const auto tokens = root.find("added_tokens_decoder"); tokens && tokens->is_object())
    for (const auto& [id, token] : tokens->members()) note_added(token.at("content").text());
}

// A file that transformers writes for tokenizers without tokenizer.json: ids by content.
void Tokenizer::State::read_added_tokens(const JsonField& root) {
  for (const auto& [content, id] : root.members()) note_added(content);
}

void Tokenizer::State::note_added(const std::string& content) {
  if (!content.empty() && !id_of(content)) left_out.push_back(content);
}

void Tokenizer::State::check_id(std::int32_t id) const {
  if (id < 0 || id >= contents.size())
    throw_error<InputError>("the token id {} is outside the vocabulary of {}", id, contents.size());
}

void Tokenizer::State::append(std::int32_t id, Specials specials, DecoderRun& run, std::string& text) const {
  check_id(id);
  if (!is_token(id) || (specials == Specials::skip && special[static_cast<std::size_t>(id)])) return;
  run.push(contents[id], text);
}

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::shared_ptr<Tokenizer::State> Tokenizer::State::read(std::string_view tokenizer_json, std::string_view config_json,
                                                         const std::filesystem::path& where) {
  const auto check_size = [](const std::string& path, std::string_view text, std::size_t max_bytes) {
    if (text.size() > max_bytes) throw_error<InputError>("{}: longer than {} bytes (max_file_bytes)", path, max_bytes);
  };
  const std::string path = (where / kTokenizerName).string();
  check_size(path, tokenizer_json, kMaxTokenizerBytes);
  const nlohmann::json root = parse_json(tokenizer_json, path);
  auto state = std::make_shared<State>(JsonField(root, path));
  if (config_json.empty()) return state;

  const std::string config_path = (where / kConfigName).string();
  check_size(config_path, config_json, kMaxConfigBytes);
  const nlohmann::json config = parse_json(config_json, config_path);
  state->read_config(JsonField(config, config_path));
  return state;
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json,
                               std::string_view where) {
  return Tokenizer(State::read(tokenizer_json, tokenizer_config_json, where));
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const auto path = folder / kTokenizerName;
  if (!std::filesystem::is_directory(folder)) throw_error<InputError>("{}: there is no such folder", folder.string());
  if (!std::filesystem::exists(path))
    throw_error<InputError>("{}: is missing; transformers writes it with AutoTokenizer(...).save_pretrained(folder)",
                            path.string());
  const auto config_path = folder / kConfigName;
  std::string config;
  if (std::filesystem::exists(config_path)) {
    config = read_file(config_path, kMaxConfigBytes);
    if (config.empty()) config = " ";  // an empty file is an error, a missing file is not
  }
  const auto state = State::read(read_file(path, kMaxTokenizerBytes), config, folder);
  const auto added_path = folder / kAddedTokensName;
  if (std::filesystem::exists(added_path)) {
    const nlohmann::json added = parse_json(read_file(added_path, kMaxConfigBytes), added_path.string());
    state->read_added_tokens(JsonField(added, added_path.string()));
  }
  return Tokenizer(state);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens) const {
  return encode(text, special_tokens, {});
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens,
                                            std::span<const std::size_t> guarded) const {
  if (text.size() > kMaxEncodeBytes)
    throw_error<InputError>("the text to encode has {} bytes, more than {} (max_text_bytes)", text.size(),
                            kMaxEncodeBytes);
  if (const auto offset = find_invalid_utf8(text))
    throw_error<InputError>("the text to encode is not valid UTF-8 at byte {}", *offset);
  Pieces pieces;
  pieces.text = text;
  if (!text.empty()) pieces.list.push_back({{0, static_cast<std::uint32_t>(text.size())}});
  state_->added_tokens.split(pieces, state_->normalizer, guarded);
  state_->pre_tokenizer.apply(pieces);
  return state_->post_processor.apply(state_->model.encode(pieces), special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, Specials specials) const {
  std::string text;
  DecoderRun run(state_->decoder);
  for (const std::int32_t id : ids) state_->append(id, specials, run, text);
  run.finish(text);
  return text;
}

std::int32_t Tokenizer::vocab_size() const {
  return state_->contents.size();
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return state_->id_of(token);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->special[static_cast<std::size_t>(id)];
}

std::string Tokenizer::token_text(std::int32_t id) const {
  state_->check_id(id);
  return is_special(id) ? std::string(state_->contents[id]) : decode({&id, 1});
}

std::optional<std::string> Tokenizer::token_bytes(std::int32_t id) const {
  state_->check_id(id);
  if (!state_->is_token(id) || is_special(id)) return std::nullopt;
  return state_->decoder.bytes_of(state_->contents[id]);
}

std::optional<std::int32_t> Tokenizer::bos_id() const {
  return state_->bos_id;
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return state_->eos_id;
}
std::span<const std::string> Tokenizer::tokens_left_out() const {
  return state_->left_out;
}

std::span<const std::string_view> Tokenizer::settings_not_applied() const {
  return state_->not_applied;
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, Specials specials)
    : tokenizer_(std::move(tokenizer)),
      specials_(specials),
      run_(std::make_unique<DecoderRun>(tokenizer_.state_->decoder)) {}

StreamDecoder::StreamDecoder(const StreamDecoder& other)
    : tokenizer_(other.tokenizer_), specials_(other.specials_), run_(std::make_unique<DecoderRun>(*other.run_)) {}

StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

StreamDecoder& StreamDecoder::operator=(StreamDecoder other) noexcept {
  std::swap(tokenizer_, other.tokenizer_);
  std::swap(specials_, other.specials_);
  std::swap(run_, other.run_);
  return *this;
}

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  tokenizer_.state_->append(id, specials_, *run_, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  run_->finish(text);
  *run_ = DecoderRun(tokenizer_.state_->decoder);
  return text;
}

}  // namespace heddle

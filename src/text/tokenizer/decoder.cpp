#include "text/tokenizer/decoder.h"

#include <initializer_list>
#include <variant>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxStages = 64;
constexpr std::int64_t kMaxStripped = 1 << 20;

}  // namespace

Decoder::Decoder() : stages_{JoinWithSpaces{}} {}

Decoder::Decoder(const JsonField& field) {
  add(field);
}

void Decoder::add(const JsonField& field) {
  if (stages_.size() == kMaxStages) field.fail(fmt::format("more than {} decoders (max_decoders)", kMaxStages));
  const std::string type = field.at("type").text();
  if (type == "Sequence") {
    for (const JsonField& element : field.at("decoders").elements()) add(element);
  } else if (type == "ByteLevel") {
    stages_.emplace_back(ByteLevelStage{});
  } else if (type == "ByteFallback") {
    stages_.emplace_back(ByteFallbackStage{});
  } else if (type == "Replace") {
    stages_.emplace_back(ReplaceStage{Pattern::from_json(field.at("pattern")), field.at("content").text(), {}});
  } else if (type == "Strip") {
    const auto count = [&](std::string_view key) {
      return static_cast<std::size_t>(field.at(key).integer(0, kMaxStripped));
    };
    stages_.emplace_back(StripStage{one_character(field.at("content")), count("start"), count("stop")});
  } else if (type == "Fuse") {
    stages_.emplace_back(FuseStage{});
  } else if (type == "Metaspace") {
    stages_.emplace_back(MetaspaceStage{Metaspace::from_json(field)});
  } else if (type == "BPEDecoder") {
    const std::string suffix = field.at("suffix").text();
    if (suffix.empty()) field.at("suffix").fail_expected("at least one character");
    stages_.emplace_back(WordSuffixStage{suffix, {}});
  } else {
    field.at("type").fail(
        fmt::format("the decoder \"{}\" is not supported (ByteLevel, ByteFallback, Replace, Strip, Fuse, Metaspace, "
                    "BPEDecoder and Sequence are)",
                    type));
  }
}

std::string Decoder::bytes_of(std::string_view token) const {
  for (const DecoderStage& stage : stages_) {
    if (std::holds_alternative<JoinWithSpaces>(stage) || std::holds_alternative<WordSuffixStage>(stage))
      throw InputError("the tokenizer's decoder writes a token in another way where a token follows");
    if (std::holds_alternative<ByteLevelStage>(stage)) return from_byte_level(token).value_or(std::string(token));
    if (std::holds_alternative<ByteFallbackStage>(stage))
      if (const auto byte = byte_of_token(token)) return std::string(1, *byte);
  }
  constexpr std::string_view kBefore = "a";  // the text's first token, which some stages strip
  const auto decoded = [&](std::initializer_list<std::string_view> tokens) {
    std::string text;
    DecoderRun run(*this);
    for (const std::string_view one : tokens) run.push(one, text);
    run.finish(text);
    return text;
  };
  const std::string before = decoded({kBefore});
  std::string both = decoded({kBefore, token});
  if (!both.starts_with(before))
    throw InputError("the tokenizer's decoder writes a token in another way where a token follows");
  return both.substr(before.size());
}

void DecoderNext::text(std::string_view text) {
  if (text.empty()) return;
  if (stage_ == run_->stages_.size()) {
    *out_ += text;
    return;
  }
  const DecoderNext next(*run_, stage_ + 1, *out_);
  std::visit([&](auto& stage) { stage.text(text, next); }, run_->stages_[stage_]);
}

void DecoderNext::end() {
  if (stage_ == run_->stages_.size()) return;
  const DecoderNext next(*run_, stage_ + 1, *out_);
  std::visit([&](auto& stage) { stage.end(next); }, run_->stages_[stage_]);
}

void DecoderRun::push(std::string_view token, std::string& text) {
  DecoderNext first(*this, 0, text);
  first.text(token);
  first.end();
}

void DecoderRun::finish(std::string& text) {
  for (std::size_t index = 0; index < stages_.size(); ++index) {
    const DecoderNext next(*this, index + 1, text);
    std::visit([&](auto& stage) { stage.finish(next); }, stages_[index]);
  }
}

}  // namespace heddle

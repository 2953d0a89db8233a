#include "text/tokenizer/post_processor.h"

#include <string>

#include "base/error.h"
#include "text/tokenizer/token_table.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxParts = 256;

}  // namespace

PostProcessor::PostProcessor(const JsonField& field, const std::function<bool(std::int32_t)>& is_token) {
  add(field, is_token);
}

void PostProcessor::add(const JsonField& field, const std::function<bool(std::int32_t)>& is_token) {
  const std::string type = field.at("type").text();
  if (type == "Sequence") {
    for (const JsonField& element : field.at("processors").elements()) add(element, is_token);
  } else if (type == "TemplateProcessing") {
    if (!template_.empty()) field.fail("a second template is not supported");
    const JsonField special_tokens = field.at("special_tokens");
    const JsonField single = field.at("single");
    for (const JsonField& piece : single.elements()) {
      if (const auto sequence = piece.find("Sequence")) {
        if (sequence->at("id").text() != "A") sequence->at("id").fail_expected("\"A\" (the template is for one text)");
        template_.push_back(kText);
        continue;
      }
      const JsonField token = piece.at("SpecialToken").at("id");
      for (const JsonField& id : special_tokens.at(token.text()).at("ids").elements()) {
        template_.push_back(static_cast<std::int32_t>(id.integer(0, kMaxTokenId)));
        if (!is_token(template_.back())) id.fail_expected("the id of a token");
      }
    }
    if (template_.size() > kMaxParts) single.fail(fmt::format("more than {} parts (max_template_parts)", kMaxParts));
    if (template_.empty()) single.fail("an empty template is not supported");
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    if (!template_.empty()) field.fail("a second template is not supported");
    const auto id_at = [&](std::string_view key) {
      const JsonField token = field.at(key);
      const auto parts = token.elements();
      if (parts.size() != 2) token.fail_expected("[\"TOKEN\", ID]");
      const auto id = static_cast<std::int32_t>(parts[1].integer(0, kMaxTokenId));
      if (!is_token(id)) parts[1].fail_expected("the id of a token");
      return id;
    };
    template_ = {id_at("cls"), kText, id_at("sep")};
  } else if (type != "ByteLevel") {
    field.at("type").fail(
        fmt::format("the post-processor \"{}\" is not supported (TemplateProcessing, BertProcessing, "
                    "RobertaProcessing, ByteLevel and Sequence are)",
                    type));
  }
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> text, SpecialTokens special_tokens) const {
  if (template_.empty()) return text;
  std::vector<std::int32_t> result;
  result.reserve(text.size() + template_.size());
  for (const std::int32_t part : template_) {
    if (part == kText) {
      result.insert(result.end(), text.begin(), text.end());
    } else if (special_tokens == SpecialTokens::add) {
      result.push_back(part);
    }
  }
  return result;
}

}  // namespace heddle

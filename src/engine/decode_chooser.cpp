#include "engine/decode_chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/lane.h"
#include "fused/decode_block.h"

namespace heddle {

DecodeChooser::DecodeChooser(const DecodeTable& table, const RankModels& ranks, const ExecutorLimits& limits) {
  if (!limits.step.fused_decode || !has_fused(table)) return;
  const Model& model = *ranks.front().model;
  const int sms = sms_of_step(ranks.front(), 0, limits.num_sms);
  const int num_sms = sms > 0 ? sms : num_sms_of(model.device());
  const int page_size = limits.page_size / model.shape().shard.ranks;
  device_ = model.device().kind;
  most_texts_ = limits.step.max_sequences;
  const int most = std::min(limits.step.max_sequences, static_cast<int>(kMostBlockTokens));
  for (int tokens = 1; tokens <= most; ++tokens) {
    OfTokens& own = of_tokens_.emplace_back();
    for (const DecodeLine& line : table) {
      if (tokens > line.up_to_tokens) continue;
      const bool is_covered = std::ranges::any_of(
          own.lines, [&](const Line& before) { return before.up_to_context >= line.up_to_context; });
      if (is_covered) continue;
      std::string why;
      if (line.choice.fused())
        why = model.why_not_fused(
            {.choice = line.choice, .num_tokens = tokens, .page_size = page_size, .num_sms = num_sms});
      if (why.empty())
        own.lines.push_back({.up_to_context = line.up_to_context, .choice = line.choice, .why = why_chosen(line)});
      else if (own.refused.empty())
        own.refused = std::move(why);
    }
  }
}

DecodeChoice DecodeChooser::choose(const StepPlan& plan) const {
  if (plan.tokens.size() > of_tokens_.size() || !is_decode(plan) || plan.prefix_tokens > 0) return {};
  const int context = std::ranges::max(plan.sequences, {}, &StepSequence::context_len).context_len;
  const std::vector<Line>& lines = of_tokens_[plan.tokens.size() - 1].lines;
  const auto line = std::ranges::find_if(lines, [&](const Line& each) { return context <= each.up_to_context; });
  return line == lines.end() ? DecodeChoice{} : line->choice;
}

std::vector<std::string> DecodeChooser::lines() const {
  std::vector<std::string> lines;
  for (std::size_t first = 0, end = 0; first < of_tokens_.size(); first = end) {
    const OfTokens& own = of_tokens_[first];
    while (end < of_tokens_.size() && of_tokens_[end].lines == own.lines) ++end;
    const std::string who = end == first + 1 ? fmt::format("of {} text{}", end, end == 1 ? "" : "s")
                                             : fmt::format("of {} to {} texts", first + 1, end);
    for (const Line& line : own.lines) {
      const bool any = line.up_to_context == std::numeric_limits<int>::max();
      const std::string contexts = any ? "" : fmt::format(" with up to {} tokens", line.up_to_context);
      const std::string& why = line.choice.fused() || own.refused.empty() ? line.why : own.refused;
      lines.push_back(fmt::format("decode steps {}{}: {}{}{}", who, contexts, text_of(line.choice, device_),
                                  why.empty() ? "" : ": ", why));
    }
    if (own.lines.empty() || own.lines.back().up_to_context != std::numeric_limits<int>::max())
      lines.push_back(fmt::format("{}decode steps {}: {}{}", own.lines.empty() ? "" : "other ", who,
                                  text_of(DecodeChoice{}, device_), own.refused.empty() ? "" : ": " + own.refused));
  }
  if (const int most = static_cast<int>(of_tokens_.size()); most > 0 && most_texts_ > most)
    lines.push_back(fmt::format("decode steps of {} to {} texts: {}: one operator takes up to {} texts", most + 1,
                                most_texts_, text_of(DecodeChoice{}, device_), most));
  return lines;
}

}  // namespace heddle

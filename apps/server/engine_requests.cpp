#include "server/engine_requests.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "base/error.h"
#include "engine/sampler.h"
#include "server/api_error.h"

namespace heddle::server {
namespace {

constexpr std::int64_t kDefaultCompletionTokens = 16;  // OpenAI's
// The form that an answer must have; a model that reasons may do so before.
std::optional<grammar::GrammarSource> form_of(const GenerationRequest& request, const EncodedPrompts& prompts,
                                              const EngineContext& context) {
  if (!request.grammar) return std::nullopt;
  if (context.constraints == nullptr)
    throw ApiError(501, "answers of a given form are not implemented for this model's tokenizer", request.grammar_field,
                   "not_implemented");
  grammar::GrammarSource form = *request.grammar;
  if (request.chat && context.reasons) {
    using Preamble = grammar::Frame::Preamble;
    form.frame.preamble = prompts.opens_reasoning ? Preamble::begun : Preamble::optional;
    form.frame.preamble_open = "<think>";
    form.frame.preamble_close = "</think>";
  }
  return form;
}

std::shared_ptr<TokenConstraint> constraint_of(const grammar::GrammarSource& form, const GenerationRequest& request,
                                               const std::vector<std::int32_t>& end_ids, const EngineContext& context) {
  try {
    return context.constraints->make(form, request.grammar_field, end_ids);
  } catch (const InputError& error) {
    throw ApiError(400, error.what(), request.grammar_field);
  }
}

}  // namespace

std::vector<LoopRequest> engine_requests(const GenerationRequest& request, const EncodedPrompts& prompts,
                                         std::uint64_t owner, const EngineContext& context) {
  const Engine& engine = context.engine;
  std::vector<std::int32_t> stop_ids = request.stop_ids;
  const auto& own = context.defaults.eos_ids.empty() ? engine.model_shape().eos_ids : context.defaults.eos_ids;
  if (!request.ignore_eos) {
    stop_ids.insert(stop_ids.end(), own.begin(), own.end());
  }
  const std::optional<grammar::GrammarSource> form = form_of(request, prompts, context);
  const std::uint64_t seed = request.seed.value_or(std::random_device()());
  const bool scored = request.num_prompt_logprobs || (request.echo && request.num_top_logprobs);
  std::vector<LoopRequest> list;
  for (std::size_t prompt = 0; prompt < prompts.tokens.size(); ++prompt) {
    const auto& tokens = prompts.tokens[prompt];
    const std::int64_t room = std::max<std::int64_t>(1, engine.max_length() - std::ssize(tokens));
    Request base{.prompt = tokens,
                 .sampling = request.sampling,
                 .max_tokens = request.max_tokens.value_or(request.chat ? room : kDefaultCompletionTokens),
                 .stop_ids = stop_ids,
                 .num_top_logprobs = request.num_top_logprobs,
                 .logit_bias = request.logit_bias,
                 .min_tokens = request.min_tokens,
                 .owner = owner};
    if (request.num_samples > request.num_answers && !base.num_top_logprobs) base.num_top_logprobs = 0;
    for (int sample = 0; sample < request.num_samples; ++sample) {
      LoopRequest entry{.request = base};
      entry.request.sampling.seed = seed_of(seed, {.prompt = prompt, .sample = static_cast<std::uint32_t>(sample)});
      if (sample == 0 && scored && tokens.size() > 1)
        entry.request.prompt_logprobs =
            PromptLogprobs{.num_top = request.num_prompt_logprobs.value_or(request.num_top_logprobs.value_or(0))};
      if (form) entry.request.constraint = constraint_of(*form, request, own, context);
      if (sample > 0) entry.same_prompt_as = list.size() - static_cast<std::size_t>(sample);  // an index, for now
      list.push_back(std::move(entry));
    }
  }
  return list;
}

}  // namespace heddle::server

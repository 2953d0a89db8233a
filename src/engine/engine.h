// Token ids in, token ids out: callers submit requests, and each step advances all of them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "engine/page_allocator.h"
#include "engine/rank_group.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/token_constraint.h"
#include "engine/token_history.h"

namespace heddle {

// Whether a step starts before the host has read the tokens of the previous one; the device then passes them on. A
// request that ends at a stop token is computed for one extra step, whose results are dropped.
enum class Overlap : std::uint8_t {
  automatic,  // on a GPU
  off,
  on  // on the CPU, too; the stream then chooses tokens, as on a GPU
};

struct EngineOptions {
  int threads = 1;
  int max_sequences = 64;       // that run at once; more requests wait
  int max_tokens_per_step = 0;  // 0: 512 on the CPU, 4096 on a GPU (docs/notes/serving.md)
  int page_size = 0;            // tokens that a rank keeps of a page; 0: 32 on the CPU, 64 on a GPU
  // Limit of the key-value cache, of all ranks together; it is smaller if max_sequences need less. Nothing: 1 GiB on the
  // CPU, the free memory on a GPU.
  std::optional<std::int64_t> kv_bytes;
  // Rows of logits in a step, each vocab_size floats of memory; at least max_sequences, which sampling needs. More rows
  // allow prompts to be scored in longer chunks.
  int max_logit_rows = 0;
  Overlap overlap = Overlap::automatic;
  // Tokens of a sequence at most, if that is less than the model's context: memory is planned for so many.
  std::optional<std::int64_t> max_context;
  // Pages of ended requests stay, for requests of the same owner that begin with the same tokens, until pages run short.
  bool prefix_cache = false;
  PromptHold hold = {};  // for servers; nothing waits by default
  // Of several ranks: which steps are computed in two parts, one of which computes while the other's sums cross ranks
  // (TokenWeave).
  SplitOptions split = {};
  // By the size of a step: of several ranks how sums are computed, and of decode steps how attention is.
  ChoiceTables tables = {};
};

// Log-probabilities of the prompt's own tokens, each given the tokens before it.
struct PromptLogprobs {
  std::int64_t first = 1;  // index of the first one; token 0 of the prompt has none
  int num_top = 0;         // alternatives per token
};

// What happens to a request's keys and values when it ends.
enum class AfterEnd { release, keep };

struct Request {
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int64_t max_tokens = 256;       // to sample; the end of the context may come first. 0: with prompt_logprobs only
  std::vector<std::int32_t> stop_ids;  // any of these ends the text and is its last token
  std::optional<int> num_top_logprobs;  // set: log-probabilities, with that many alternatives
  std::optional<PromptLogprobs> prompt_logprobs;
  AfterEnd after_end = AfterEnd::release;
  std::vector<LogitBias> logit_bias;  // at most kMostLogitBiases, each from -1000 to 1000; those of one id add up
  std::int64_t min_tokens = 0;        // sampled before any of stop_ids: until then their logits are lowered by 1000
  std::uint64_t owner = 0;            // requests of one owner share cached pages; owners take turns (Scheduler)
  std::optional<std::int64_t> same_prompt_as;   // an earlier request with this prompt, whose pages this one will share
  std::shared_ptr<TokenConstraint> constraint;  // not shared with another request; its tokens are chosen on the host
};

// `error`: this request could not continue (its logits were not finite); others continue.
enum class FinishReason { stop, length, error };

// One sampled token, or one token of the prompt with its log-probability. Prompt tokens come in order, before sampled
// ones.
struct TokenOutput {
  std::int64_t request = 0;
  std::int32_t token = 0;
  std::optional<std::int64_t> prompt_index;       // set for a token of the prompt: its index
  std::optional<double> logprob;                  // if requested: the model's own, before temperature and filters
  std::int64_t rank = 0;                          // with logprob: the token's place among all, 1 for the likeliest
  std::vector<TokenLogprob> top;                  // likeliest first
  std::string error;                              // the reason if finish is FinishReason::error; there is no token then
  std::optional<FinishReason> finish;             // set on a request's last token
  std::chrono::steady_clock::time_point started;  // when the request's first step began
};

// Statistics, of all ranks, of the step whose tokens were returned last.
struct StepStatistics {
  int num_prompt_tokens = 0;  // computed tokens of prompts, and those computed again after a preemption; tokens
                              // reused from a kept sequence do not count
  int num_decoded = 0;        // computed tokens of answers, one of each sequence that decodes
  int num_sampled = 0;        // tokens
  // Weights once, of experts those that the step's tokens are expected to choose (layers/experts.h), and the keys and
  // values of every context.
  std::size_t bytes_read = 0;
};

// The largest step of an engine with these options on that kind of device. Tables of pages, whose size depends on memory,
// have one page here.
StepLimits step_limits(Device device, const EngineOptions& options);

// Tokens that a rank keeps of a page.
int page_size_of(Device device, const EngineOptions& options);

// Of all steps of an engine, as EngineOptions::split has cut them.
struct PartCounts {
  std::int64_t steps = 0;
  std::int64_t in_two_parts = 0;
  std::int64_t below_two_tiles = 0;  // whole for that reason alone: they have the tokens that the options ask for
  int tile_tokens = 0;               // of the largest tile; 0: no step can be cut
};

struct EngineStatus {
  int num_running = 0;
  int num_waiting = 0;
  int num_pages = 0;
  int num_free_pages = 0;
  int num_cached_pages = 0;  // of ended requests, released when pages run short
  int page_size = 0;         // tokens
  int num_ranks = 1;
  std::vector<double> rank_bytes;  // that each rank's steps have read since the start (StepStatistics::bytes_read)
  SchedulerCounters counters;
};

enum class RequestPhase : std::uint8_t { waiting, prefill, decode };

struct RequestProgress {
  std::int64_t id = 0;
  RequestPhase phase = RequestPhase::waiting;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_output_tokens = 0;
  std::int64_t num_computed = 0;  // tokens whose keys and values are in the cache
  int num_pages = 0;
};

// The sizes of an engine with these options. `available`: bytes of GPU memory beside the weights. The cache has room
// for kFewestTokens even if that exceeds the available memory. Throws Failure when kv_bytes is less than a page.
ExecutorLimits executor_limits(Model& model, const EngineOptions& options, std::size_t available);

// The sizes of each rank's executor: those of all ranks are equal, and their caches take kv_bytes together.
ExecutorLimits executor_limits(const RankModels& ranks, const EngineOptions& options, std::size_t available);

inline constexpr std::int64_t kFewestTokens = 512;                     // in a GPU's cache, or the model's context
inline constexpr std::size_t kOtherGpuBytes = std::size_t{512} << 20;  // reserve for kernels, graphs and libraries

// Not thread-safe: a server calls submit, step and cancel from the thread that loops over step.
class Engine {
 public:
  // Runs on the model's device. Throws Failure when memory is short.
  Engine(std::unique_ptr<Model> model, const EngineOptions& options);

  // The same on several ranks. A step does not start before the tokens of the one before are known, whatever
  // options.overlap says. When a rank fails, step() throws its error, and so does every later call.
  Engine(RankModels ranks, const EngineOptions& options);

  const ModelShape& model_shape() const { return executor().model().shape(); }  // rank 0's
  Device device() const { return executor().device(); }
  int num_ranks() const { return ranks_.size(); }

  // Throws the error of a rank that has failed or is lost: for a caller that waits for its user, as step() tells of it,
  // too. Cheap.
  void check_ranks() { ranks_.check(); }

  // Maximum tokens of a sequence, prompt and text: limited by the model's context, max_context and the cache.
  std::int64_t max_length() const;

  // Throws InputError as submit does. Thread-safe.
  void check(const Request& request) const;

  // Queues a request and returns its id. A prompt that begins like a kept sequence reuses its keys and values: same
  // tokens, sooner. Throws InputError when the prompt is empty, has unknown tokens or leaves no room in the context,
  // when max_tokens < 1 and nothing is scored, or when a parameter or a bias is out of range.
  std::int64_t submit(Request request);

  // Ends a request as if its last token had come. With AfterEnd::keep, its keys and values are kept until cancel(id) or
  // until pages run short. Does nothing for a finished request.
  void end(std::int64_t id);

  // Removes a request, whether it waits, runs, is finished or kept.
  void cancel(std::int64_t id);

  // Advances every running request, and as many waiting ones as fit. Returns the sampled tokens, valid until the next
  // call; may be empty while long prompts are computed. Does nothing when idle. Throws what the executor throws;
  // running requests then start again with the next call and keep their tokens.
  std::span<const TokenOutput> step();

  bool idle() const { return scheduler_.idle(); }
  const StepStatistics& last_step() const { return statistics_; }

  EngineStatus status() const;
  const PartCounts& part_counts() const { return part_counts_; }
  // Of at most `most` requests, the running ones first.
  std::vector<RequestProgress> progress(std::size_t most) const;

 private:
  struct Running {
    std::int64_t last_length = 0;  // tokens at which it ends with `length`
    std::vector<std::int32_t> stop_ids;
    std::optional<int> num_top_logprobs;
    int num_top_prompt_logprobs = 0;
    AfterEnd after_end = AfterEnd::release;
    bool penalised = false;
    std::optional<TokenHistory> history;  // only with penalties or biases; without penalties of biases alone
    std::int64_t first_end = 0;     // tokens from which on a stop token may be sampled; 0: those are not held back
    std::vector<LogitBias> biases;  // of the request, if stop tokens are held back
    std::shared_ptr<TokenConstraint> constraint;
    std::optional<std::chrono::steady_clock::time_point> started;
  };

  // A step that the executor has started.
  struct Started {
    StepPlan plan;
    StepStatistics statistics;
    bool chooses = false;        // the device chooses its tokens
    bool has_histories = false;  // penalties or biases change its logits
  };

  const Executor& executor() const { return ranks_.first(); }  // rank 0's
  void hold_back_ends(const Request& request, Running& running) const;
  static void allow_ends(Running& running);
  bool start_step();
  void count_parts(const StepPlan& plan);
  void follow(const Started& before);
  bool may_be_followed(const Started& step) const;
  bool chooses_on_device(const StepPlan& plan) const;
  Histories histories_of(const StepPlan& plan);
  StepStatistics statistics_of(const StepPlan& plan);
  void note_started(const StepPlan& plan);
  void count_bytes(const StepPlan& plan);
  void finish_step();
  void give_up();
  Started& started(int steps_ago);
  TokenOutput output_of(const StepPlan& plan, std::size_t sample_idx, std::int64_t id);
  std::int32_t sampled_token(const StepPlan& plan, std::size_t sample_idx, const Running& running);
  std::span<const float> logits_of(std::size_t sample_idx);
  std::span<const float> constrained(std::span<const float> logits, TokenConstraint& constraint);

  ExecutorLimits limits_;
  std::optional<std::int64_t> max_context_;  // EngineOptions
  RankGroup ranks_;
  PageAllocator pages_;
  Scheduler scheduler_;
  Sampler sampler_;
  bool overlaps_;
  std::array<Started, Executor::kMostInFlight> steps_;
  int next_step_ = 0;                                     // index into steps_, round robin
  Tensor logits_;                                         // of the step that was finished last
  std::span<const std::int32_t> tokens_;                  // of the same step, if the device chose them
  std::vector<float> allowed_logits_;                     // scratch of constrained()
  std::vector<std::span<const HistoryToken>> histories_;  // of the step that is being started
  std::unordered_map<std::int64_t, Running> running_;
  std::vector<TokenOutput> outputs_;
  StepStatistics statistics_;
  std::vector<double> rank_bytes_;  // EngineStatus
  PartCounts part_counts_;
  std::int64_t next_id_ = 0;
};

}  // namespace heddle

// heddle score: log-probabilities of texts' tokens under a model, and perplexity.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/jsonl.h"
#include "cli/launched.h"
#include "cli/logprob_json.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/score_windows.h"
#include "cli/speed.h"
#include "engine/engine.h"
#include "engine/model_tokenizer.h"
#include "models/registry.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

constexpr int kMaxSequences = 16;
constexpr std::int64_t kLogitsBytes = std::int64_t{128} << 20;  // per step, whatever the text's length
constexpr int kMaxTokensPerStep = 512;
constexpr int kMaxTop = 1000;
constexpr std::size_t kMaxPlainText = std::size_t{64} << 20;

struct ScoreOptions {
  ModelOptions model;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::int64_t> window;
  std::optional<std::int64_t> stride;
  int num_top = 0;
  bool json = false;
};

struct Text {
  std::vector<std::int32_t> tokens;
  std::string where;                           // begins messages about the text
  std::size_t line = 0;                        // of a file of texts, from 1; 0: it is the only text
  nlohmann::json id;                           // that its line gives; null: none
  std::string error;                           // not empty: it cannot be scored, for this reason
  std::vector<double> logprobs;                // one per token; NaN: none
  std::vector<std::vector<TokenLogprob>> top;  // likeliest first, one list per token; empty if not requested
  int windows_left = 0;                        // submitted and not finished
  bool all_submitted = false;
};

// The model's tokenizer, loaded when a text first needs it: a folder may have none if all lines are token ids.
class LazyTokenizer {
 public:
  explicit LazyTokenizer(std::string model) : model_(std::move(model)) {}
  const Tokenizer& get() {
    if (!tokenizer_) tokenizer_ = load_tokenizer(model_);
    return *tokenizer_;
  }
  // Null if the model has none.
  const Tokenizer* find() {
    if (!tokenizer_ && !std::exchange(searched_, true)) tokenizer_ = find_model_tokenizer(model_);
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }

 private:
  std::string model_;
  std::optional<Tokenizer> tokenizer_;
  bool searched_ = false;
};

std::vector<std::int32_t> tokens_of(const JsonField& object, LazyTokenizer& tokenizer) {
  const auto text = object.find("text");
  const auto tokens = object.find("tokens");
  if (text && tokens) object.fail("has both \"text\" and \"tokens\"; give one of them");
  if (!text && !tokens) object.fail("has neither \"text\" nor \"tokens\"; give one of them");
  if (text) return tokenizer.get().encode(text->text());
  std::vector<std::int32_t> ids;
  for (const JsonField& element : tokens->elements())
    ids.push_back(static_cast<std::int32_t>(element.integer(0, std::numeric_limits<std::int32_t>::max())));
  return ids;
}

// The fields of a line, and those of other programs' files.
const std::vector<std::string> kTextFields = {"text", "tokens", "id"};
constexpr FieldAdvice kTextAdvice[] = {{"prompt", "use \"text\""},
                                       {"content", "use \"text\""},
                                       {"input_ids", "use \"tokens\""},
                                       {"token_ids", "use \"tokens\""},
                                       {"custom_id", "use \"id\""}};

// Reads one line of a file into `text`.
void read_line(std::string_view line, LazyTokenizer& tokenizer, Text& text) {
  const nlohmann::json object = parse_object(line, text.where);
  const JsonField field(object, text.where);
  text.id = id_of(field);
  refuse_unknown_fields(field, kTextFields, kTextAdvice, "a text");
  text.tokens = tokens_of(field, tokenizer);
}

// Runs `action`; its input errors begin with `where`.
template <class Action>
auto at(const std::string& where, Action action) {
  try {
    return action();
  } catch (const InputError& error) {
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw_error<InputError>("{}: {}", where, error.what());
  }
}

std::vector<Text> read_texts(const ScoreOptions& options, LazyTokenizer& tokenizer) {
  std::vector<Text> texts;
  if (options.text) {
    texts.push_back({.tokens = at("--text", [&] { return tokenizer.get().encode(*options.text); }), .where = "--text"});
    return texts;
  }
  const InputText input = given_input(options.file, kMaxLinesBytes, kTextRequired);
  if (is_plain_text(options.file.value_or("-"), input.text)) {
    if (input.text.size() > kMaxPlainText)
      throw_error<InputError>("{}: a plain text of more than {} bytes (max_file_bytes)", input.where, kMaxPlainText);
    texts.push_back(
        {.tokens = at(input.where, [&] { return tokenizer.get().encode(input.text); }), .where = input.where});
    return texts;
  }
  for (const TextLine& line : split_lines(input.text, input.where)) {
    Text& text = texts.emplace_back();
    text.where = fmt::format("{}:{}", input.where, line.number);
    text.line = line.number;
    try {
      at(text.where, [&] { read_line(line.text, tokenizer, text); });
    } catch (const InputError& error) {
      text.error = error.what();
    }
  }
  if (texts.empty()) throw_error<InputError>("{}: holds no texts", input.where);
  return texts;
}

// Why the model cannot score the text; empty if it can.
std::string fault_of(const Text& text, const ModelShape& shape) {
  if (text.tokens.size() < 2)
    return fmt::format("{}: the text has {}, and a text's first token has no log-probability: give at least two",
                       text.where, text.tokens.empty() ? "no tokens" : "one token");
  for (const std::int32_t token : text.tokens)
    if (token >= shape.vocab_size)
      return fmt::format("{}: token {}, the model knows 0 to {}: are the tokens from another model?", text.where, token,
                         shape.vocab_size - 1);
  return {};
}

// Of a file, each line that is wrong gets an error of its own; a text alone throws it.
void check(std::vector<Text>& texts, const ModelShape& shape) {
  for (Text& text : texts) {
    if (text.error.empty()) text.error = fault_of(text, shape);
    if (text.error.empty()) continue;
    if (text.line == 0) throw InputError(text.error);
    text.tokens.clear();
  }
}

struct WindowSize {
  std::int64_t window = 0;
  std::int64_t stride = 0;
};

WindowSize window_of(const ScoreOptions& options, const ModelShape& shape) {
  const std::int64_t context = std::min(shape.max_context, options.model.context.value_or(shape.max_context));
  const std::int64_t window = options.window.value_or(context);
  if (window > context) throw_error<InputError>("--window is {}, the context is {}", window, context);
  if (window < 2) throw_error<InputError>("the model's context is {}; scoring takes two tokens", window);
  const std::int64_t stride = options.stride.value_or((window + 1) / 2);
  if (stride > window)
    throw_error<InputError>("--stride is {}, more than the window of {}: tokens between would not be scored", stride,
                            window);
  return {window, stride};
}

// exp of the mean of -logprob over the tokens that have one.
double perplexity(const std::vector<double>& logprobs) {
  double sum = 0;
  std::int64_t count = 0;
  for (const double logprob : logprobs) {
    if (std::isnan(logprob)) continue;
    sum += logprob;
    ++count;
  }
  return std::exp(-sum / static_cast<double>(count));
}

// What every answer begins with: the line and its id, where there are any, and the status.
nlohmann::ordered_json answer_of(const Text& text) {
  nlohmann::ordered_json object;
  if (text.line > 0) object["line"] = text.line;
  if (!text.id.is_null()) object["id"] = text.id;
  object["status"] = text.error.empty() ? "ok" : "error";
  return object;
}

std::string json_of_error(const Text& text) {
  nlohmann::ordered_json object = answer_of(text);
  object["error"] = text.error;
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// `tokenizer` may be null.
std::string json_of(const Text& text, const Tokenizer* tokenizer) {
  using nlohmann::ordered_json;
  ordered_json logprobs = ordered_json::array();
  for (const double logprob : text.logprobs)
    logprobs.push_back(std::isnan(logprob) ? ordered_json() : ordered_json(logprob));
  ordered_json object = answer_of(text);
  object["tokens"] = text.tokens;
  object["logprobs"] = std::move(logprobs);
  for (std::size_t i = 0; i < text.top.size(); ++i) {
    ordered_json& list = object["top"].emplace_back();
    if (std::isnan(text.logprobs[i])) continue;
    list = ordered_json::array();
    for (const TokenLogprob& top : text.top[i]) list.push_back(logprob_json(top, tokenizer));
  }
  object["perplexity"] = perplexity(text.logprobs);
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// With as many digits as threads and devices agree on: "3.421", "2649.81". JSON has all of them.
std::string perplexity_text(const Text& text) {
  const double value = perplexity(text.logprobs);
  return fmt::format("perplexity {:.{}f}", value, value < 10 ? 3 : 2);
}

std::string summary_of(const Text& text) {
  return fmt::format("{}: {} tokens, {}\n", text.where, text.tokens.size(), perplexity_text(text));
}

// One line per token and, indented, each of its likeliest alternatives; then the perplexity.
std::string table_of(const Text& text, const Tokenizer& tokenizer) {
  const auto shown = [&](std::int32_t id) {
    return id < tokenizer.vocab_size() ? printable_text(tokenizer.token_text(id)) : std::string();
  };
  std::string table = "   index       id     logprob  token\n";
  for (std::size_t i = 0; i < text.tokens.size(); ++i) {
    const std::int32_t id = text.tokens[i];
    const std::string logprob = std::isnan(text.logprobs[i]) ? "-" : fmt::format("{:.4f}", text.logprobs[i]);
    table += fmt::format("{:>8} {:>8} {:>11}  {}\n", i, id, logprob, shown(id));
    if (text.top.empty()) continue;
    for (const TokenLogprob& top : text.top[i])
      table += fmt::format("{:>17} {:>11.4f}    {}\n", top.id, top.logprob, shown(top.id));
  }
  return table + perplexity_text(text) + "\n";
}

std::size_t num_tokens(const std::vector<Text>& texts) {
  std::size_t count = 0;
  for (const Text& text : texts) count += text.tokens.size();
  return count;
}

// Scores texts window by window, as many at a time as the engine runs, and passes each on in order when it is finished.
class Scorer {
 public:
  // `model` names it in messages.
  Scorer(Engine& engine, std::string model, std::vector<Text>& texts, WindowSize size, int num_top, Progress& progress)
      : engine_(engine), model_(std::move(model)), texts_(texts), size_(size), num_top_(num_top), progress_(progress) {}

  template <class OnText>
  void run(const InterruptGuard& interrupt, OnText on_text) {
    submit();
    while (!engine_.idle() && !interrupt.interrupted()) {
      const auto start = SpeedMeter::Clock::now();
      for (const TokenOutput& output : engine_.step()) take(output);
      speed_.add_step(engine_.last_step(), start);
      submit();
      progress_.update(num_scored_);
      write(on_text);
    }
    write(on_text);  // where all have errors there was no step
    progress_.hide();
  }

  const SpeedMeter& speed() const { return speed_; }
  std::size_t num_unwritten() const { return texts_.size() - next_written_; }

 private:
  struct Running {
    std::size_t text = 0;
    std::int64_t begin = 0;
  };

  static bool done(const Text& text) { return text.all_submitted && text.windows_left == 0; }

  // Those that have ended, in order.
  template <class OnText>
  void write(OnText on_text) {
    for (; next_written_ < texts_.size() && done(texts_[next_written_]); ++next_written_) {
      progress_.hide();
      on_text(texts_[next_written_]);
      texts_[next_written_] = {};  // frees it: a large file's results need not fit into memory
    }
  }

  void submit() {
    while (next_submitted_ < texts_.size() && running_.size() < 2 * kMaxSequences) {
      Text& text = texts_[next_submitted_];
      if (!text.error.empty()) {
        text.all_submitted = true;
        ++next_submitted_;
        continue;
      }
      if (!windows_) {
        windows_.emplace(std::ssize(text.tokens), size_.window, size_.stride);
        text.logprobs.assign(text.tokens.size(), std::numeric_limits<double>::quiet_NaN());
        if (num_top_ > 0) text.top.resize(text.tokens.size());
      }
      if (const auto window = windows_->next()) {
        const std::int64_t id = at(text.where, [&] {
          return engine_.submit(
              {.prompt = {text.tokens.begin() + window->begin, text.tokens.begin() + window->end},
               .max_tokens = 0,
               .prompt_logprobs = PromptLogprobs{.first = window->first - window->begin, .num_top = num_top_}});
        });
        running_.emplace(id, Running{.text = next_submitted_, .begin = window->begin});
        ++text.windows_left;
      } else {
        text.all_submitted = true;
        windows_.reset();
        ++next_submitted_;
      }
    }
  }

  void take(const TokenOutput& output) {
    const Running running = running_.at(output.request);
    Text& text = texts_[running.text];
    if (output.finish == FinishReason::error)
      fail_by_damaged_weights(model_, fmt::format("{}: {}", text.where, output.error));
    const auto index = static_cast<std::size_t>(running.begin + *output.prompt_index);
    text.logprobs[index] = *output.logprob;
    ++num_scored_;
    if (num_top_ > 0) text.top[index] = output.top;
    if (!output.finish) return;
    --text.windows_left;
    running_.erase(output.request);
  }

  Engine& engine_;
  std::string model_;
  std::vector<Text>& texts_;
  WindowSize size_;
  int num_top_;
  std::optional<ScoreWindows> windows_;  // of the text at next_submitted_
  std::size_t next_submitted_ = 0;
  std::size_t next_written_ = 0;
  std::unordered_map<std::int64_t, Running> running_;
  std::size_t num_scored_ = 0;  // tokens of all texts
  SpeedMeter speed_;
  Progress& progress_;
};

// The texts with errors: they are told of where they stand, and at the end.
class Failures {
 public:
  explicit Failures(bool json) : json_(json) {}

  void add(const Text& text) {
    if (num_++ == 0) first_ = text.error;
    if (json_)
      write_stdout(json_of_error(text));
    else
      write_stderr("heddle: error: " + text.error + "\n");
  }

  void require_none(std::size_t num_texts) const {
    if (num_ == 0) return;
    if (num_texts == 1 && json_) throw InputError(first_);
    throw_error<InputError>("{} of {} texts failed{}", num_, num_texts, json_ ? "; the first: " + first_ : "");
  }

 private:
  bool json_;
  std::size_t num_ = 0;
  std::string first_;
};

// Where no text is right, the model need not be loaded.
void require_a_right_text(const std::vector<Text>& texts, Failures& failures) {
  if (std::ranges::any_of(texts, [](const Text& text) { return text.error.empty(); })) return;
  for (const Text& text : texts) failures.add(text);
  failures.require_none(texts.size());
}

void score(const ScoreOptions& options) {
  if (followed(options.model)) return;
  if (options.num_top > 0 && !options.text && !options.json)
    throw InputError("--top: without --text, the likeliest tokens are written with --json only");
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  LazyTokenizer tokenizer(options.model.model);
  std::vector<Text> texts = read_texts(options, tokenizer);
  Failures failures(options.json);
  require_a_right_text(texts, failures);

  const std::int64_t vocab_size = std::max<std::int64_t>(1, describe_model(source->config()).vocab_size.value_or(1));
  const std::int64_t row_bytes = vocab_size * static_cast<std::int64_t>(sizeof(float));
  EngineOptions engine_options{.max_sequences = kMaxSequences, .max_tokens_per_step = kMaxTokensPerStep};
  engine_options.max_logit_rows =
      static_cast<int>(std::clamp<std::int64_t>(kLogitsBytes / row_bytes, kMaxSequences, kMaxTokensPerStep));
  RankModels ranks = load(*source, options.model, engine_options);
  const ModelShape shape = ranks.front().model->shape();
  const WindowSize size = window_of(options, shape);
  check(texts, shape);
  if (options.num_top > shape.vocab_size)
    throw_error<InputError>("--top is {}, the model's vocabulary is {}", options.num_top, shape.vocab_size);
  Engine engine(std::move(ranks), engine_options);

  const InterruptGuard interrupt;
  Progress progress("score", num_tokens(texts), kTokens, shown_unless(options.model.quiet));
  Scorer scorer(engine, options.model.model, texts, size, options.num_top, progress);
  scorer.run(interrupt, [&](const Text& text) {
    if (!text.error.empty())
      failures.add(text);
    else if (options.json)
      write_stdout(json_of(text, options.num_top > 0 ? tokenizer.find() : nullptr));
    else
      write_stdout(options.text ? table_of(text, tokenizer.get()) : summary_of(text));
  });
  report_parts(engine, options.model);
  if (!options.model.quiet && scorer.speed().num_prompt_tokens() > 0)
    write_stderr(fmt::format("heddle: {}\n", scorer.speed().summary()));
  if (!interrupt.interrupted()) return failures.require_none(texts.size());
  write_stderr(
      fmt::format("heddle: interrupted; {} of {} texts were not finished\n", scorer.num_unwritten(), texts.size()));
  throw Interrupted{interrupt.signal()};
}

}  // namespace

void add_score(CLI::App& app) {
  const auto options = std::make_shared<ScoreOptions>();
  CLI::App* command = app.add_subcommand("score", "Log-probabilities of a text's tokens, and its perplexity");
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_limit_options(*command, options->model, Sequences::one);
  auto* input = command->add_option_group("input", "One of, or a text on standard input");
  input->add_option("--text", options->text, "The text; special tokens in it are parsed")->type_name("TEXT");
  input
      ->add_option(
          "--file", options->file,
          "One plain text, or JSON lines, {\"text\": ...} or {\"tokens\": [ids]}, each perhaps with an \"id\": "
          "*.jsonl, *.json and what begins with a brace, unless it is called *.txt; any other field is an error of its "
          "line; - is standard input")
      ->type_name("FILE");
  input->require_option(0, 1);
  add_number_option<std::int64_t>(*command, "--window", options->window,
                                  "Score in windows of that many tokens; default: the model's context", {.min = 2});
  add_number_option<std::int64_t>(
      *command, "--stride", options->stride,
      "Tokens from one window's beginning to the next; a window scores what those before it have not; default: half a "
      "window",
      {.min = 1});
  add_number_option<int>(*command, "--top", options->num_top,
                         "The N likeliest tokens in each token's place, too; in JSON \"top\", a list a token",
                         {.min = 1, .max = kMaxTop});
  command->add_flag(
      "--json", options->json,
      "One line per text: {\"status\": \"ok\", \"tokens\", \"logprobs\", \"perplexity\"}; the first log-probability is "
      "null; of a line of --file its \"line\" and \"id\", too; of one that is wrong {\"line\", \"id\", \"status\": "
      "\"error\", \"error\"}, and the exit status is 2");
  auto* verbose = command->add_flag("--verbose", options->model.verbose,
                                    "Say on standard error where the model runs, why there, and what memory it takes");
  verbose->excludes(command->add_flag("--quiet", options->model.quiet, "No progress, and no speed at the end"));
  command->callback([options, command] {
    options->model.given = given_options(*command);
    score(*options);
  });
}

}  // namespace heddle

// heddle chat: a conversation with a model, from a terminal or a pipe.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/suggestion.h"
#include "cli/chat/completion.h"
#include "cli/chat/conversation.h"
#include "cli/chat/input.h"
#include "cli/chat/parameters.h"
#include "cli/chat/session.h"
#include "cli/chat/terminal.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/launched.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/template_options.h"
#include "text/tokenizer/utf8.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

constexpr std::string_view kHelp =
    "/reset                   begin a new conversation; the system message stays\n"
    "/system [TEXT]           show the system message, or set it; \"\" removes it\n"
    "/params [NAME=VALUE ...] show how answers are sampled, or change it\n"
    "/save FILE               write the conversation as JSON, for /load, --load and heddle template --file\n"
    "/load FILE               go on with a conversation that /save wrote, instead of this one\n"
    "/undo                    drop the last message and its answer\n"
    "/regenerate              answer the last message again, with another seed\n"
    "/shift                   at the context's end, leave out the oldest messages instead of stopping; again: stop\n"
    "/help                    this\n"
    "/exit                    leave, as Ctrl-D does\n"
    "A backslash at a line's end continues it; \"\"\" begins and ends a message of several lines. A message that\n"
    "begins with // is sent with one / less. Tab completes commands and the names of files. Ctrl-C stops an answer,\n"
    "clears the line, and, twice, leaves.\n";

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling{.max_tokens = 1024};
  TemplateOptions chat_template;
  std::optional<std::string> system;
  std::optional<std::string> load;
  bool shift = false;
  bool verbose = false;
};

// Messages for the user, on standard error: dim on a terminal that can show it.
void note(std::string_view text) {
  if (takes_escapes(STDERR_FILENO))
    write_stderr(fmt::format("\x1b[2m{}\x1b[0m\n", text));
  else
    write_stderr(::isatty(STDERR_FILENO) != 0 ? fmt::format("{}\n", text) : fmt::format("heddle: {}\n", text));
}

// A message becomes a template variable and JSON, which must be UTF-8; this error names the source.
void require_utf8(std::string_view text, std::string_view what) {
  if (const auto offset = find_invalid_utf8(text))
    throw_error<InputError>("{} is not valid UTF-8 at byte {} of {}", what, *offset, text.size());
}

class Chat {
 public:
  Chat(const ChatOptions& options, Conversation conversation, ModelChatTemplate chat_template,
       ChatParameters parameters, ChatSession& session)
      : options_(options),
        conversation_(std::move(conversation)),
        chat_template_(std::move(chat_template)),
        parameters_(parameters),
        shifts_(options.shift),
        session_(session) {}

  // Throws InputError at the end of a pipe in which a message or a command failed.
  void run() {
    const std::unique_ptr<LineSource> input = open_standard_input(interrupt_, [this] { session_.check_ranks(); });
    if (from_terminal_ && !options_.model.quiet)
      note(fmt::format("{}, context {}; /help lists commands", options_.model.model, session_.max_length()));
    for (;;) {
      try {
        const auto message = read_message(*input);
        if (!message && from_terminal_) write_stderr("\n");  // after the prompt at which Ctrl-D was typed
        interrupted_before_ = false;
        if (!message || !take(*message)) break;
      } catch (const LineSource::Cleared&) {
        write_stderr("\n");
        if (std::exchange(interrupted_before_, true)) throw Interrupted{SIGINT};
        note("Ctrl-C again or /exit leaves");
      } catch (const InputError& error) {  // the conversation continues without that line
        write_stderr(fmt::format("heddle: error: {}\n", error.what()));
        ++num_failed_;
      }
    }
    if (num_failed_ > 0 && !from_terminal_)
      throw_error<InputError>("{} of the messages and commands on standard input failed", num_failed_);
  }

 private:
  // Returns false when the user ends the chat.
  bool take(const UserMessage& message) {
    std::string_view text = message.text;
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return true;
    if (message.literal || !text.starts_with('/')) {
      answer(text);
      return true;
    }
    if (text.starts_with("//")) {
      answer(text.substr(1));
      return true;
    }
    return obey(text);
  }

  bool obey(std::string_view line) {
    const auto trimmed = [](std::string_view text) {
      const std::size_t begin = text.find_first_not_of(" \t\n");
      if (begin == std::string_view::npos) return std::string_view();
      return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
    };
    const std::string_view name = line.substr(0, line.find_first_of(" \t\n"));
    const std::string_view rest = trimmed(line.substr(name.size()));
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/help")
      write_stderr(kHelp);
    else if (name == "/reset")
      reset();
    else if (name == "/system")
      set_system(rest);
    else if (name == "/params")
      set_parameters(rest);
    else if (name == "/save")
      save(rest);
    else if (name == "/load")
      load(rest);
    else if (name == "/undo")
      undo();
    else if (name == "/regenerate")
      regenerate();
    else if (name == "/shift")
      set_shift(!shifts_);
    else
      refuse_unknown(name);
    return true;
  }

  [[noreturn]] static void refuse_unknown(std::string_view name) {
    const std::vector<std::string> commands = chat_commands();
    const std::string near = nearest(name, commands);
    throw_error<InputError>("unknown command \"{}\"; {}/help lists those that there are", name,
                            near.empty() ? "" : fmt::format("did you mean {}? ", near));
  }

  void reset() {
    conversation_.clear();
    num_left_out_ = 0;
    session_.reset();
    note("a new conversation");
  }

  void set_system(std::string_view text) {
    if (text.empty()) {
      const auto system = conversation_.system();
      note(system ? fmt::format("system message: {}", *system) : std::string("no system message"));
      return;
    }
    require_utf8(text, "the system message");
    if (text == "\"\"")
      conversation_.set_system(std::nullopt);
    else
      conversation_.set_system(std::string(text));
  }

  void set_parameters(std::string_view assignments) {
    parameters_.assign(assignments);
    note(parameters_.list());
  }

  void save(std::string_view file) {
    if (file.empty()) throw InputError("/save: give the name of a file");
    try {
      write_file(std::string(file), conversation_.json());
    } catch (const Failure& failure) {  // another name may work; the conversation must not be lost
      throw InputError(failure.what());
    }
    note(fmt::format("saved {} messages to {}", conversation_.num_messages(), file));
  }

  void load(std::string_view file) {
    if (file.empty() || file == "-") throw InputError("/load: give the name of a file");
    Conversation loaded(read_conversation(std::string(file)), file);
    loaded.set_variables(assigned_variables(options_.chat_template));
    conversation_ = std::move(loaded);
    num_left_out_ = 0;
    note(fmt::format("loaded {} messages from {}", conversation_.num_messages(), file));
  }

  void undo() {
    if (!conversation_.drop_exchange()) throw InputError("/undo: there is no message to drop");
    num_left_out_ = std::min(num_left_out_, std::max<std::size_t>(conversation_.num_exchanges(), 1) - 1);
    note(fmt::format("dropped; the conversation has {} messages", conversation_.num_messages()));
  }

  void regenerate() {
    const Conversation before = conversation_;
    if (!conversation_.drop_answer()) throw InputError("/regenerate: there is no message to answer");
    ++parameters_.sampling.seed;
    if (parameters_.sampling.temperature == 0)
      note("at temperature 0 another seed changes nothing; /params temperature=1 varies answers");
    respond(before);
  }

  void set_shift(bool shifts) {
    shifts_ = shifts;
    note(shifts ? "at the context's end the oldest messages are left out" : "at the context's end the chat stops");
  }

  void answer(std::string_view text) {
    require_utf8(text, "the message");
    const Conversation before = conversation_;
    conversation_.add_user(text);
    respond(before);
  }

  // The conversation as the model sees it. When no room is left for an answer and /shift is on, it is without its oldest
  // exchanges, down to half of the context, so that the next messages need no shift.
  std::string prompt() {
    std::string text = chat_template_.render(conversation_.input_without(num_left_out_));
    const std::int64_t length = session_.max_length();
    if (!shifts_ || num_tokens(text) + std::min(parameters_.max_tokens, length / 4) <= length) return text;
    const std::size_t before = num_left_out_;
    while (num_left_out_ + 1 < conversation_.num_exchanges() && num_tokens(text) > length / 2)
      text = chat_template_.render(conversation_.input_without(++num_left_out_));
    if (num_left_out_ > before)
      note(fmt::format(
          "the context is full: the model no longer sees the oldest {} of {} messages of yours; /save keeps "
          "all",
          num_left_out_, conversation_.num_exchanges()));
    return text;
  }

  std::int64_t num_tokens(const std::string& prompt) const { return std::ssize(session_.encode(prompt)); }

  void require_room(std::int64_t tokens) const {
    const std::int64_t length = session_.max_length();
    if (tokens < length) return;
    if (num_left_out_ + 1 == conversation_.num_exchanges())
      throw_error<InputError>("the message has {} tokens, and the context is {}: give a shorter one", tokens, length);
    throw_error<InputError>("the conversation has {} tokens with this message, and the context is {}: {}", tokens,
                            length, at_the_end());
  }

  // What helps where the context is full. Shifting never leaves out the last message.
  std::string at_the_end() const {
    const bool can_shift = !shifts_ && num_left_out_ + 1 < conversation_.num_exchanges();
    return fmt::format("{}/save FILE keeps the conversation, /reset begins a new one",
                       can_shift ? "/shift leaves out the oldest messages, " : "");
  }

  // Answers the conversation's last message; if that fails, the conversation is `before` again.
  void respond(const Conversation& before) {
    try {
      bool line_open = false;
      const auto print = [&](std::string_view more) {
        if (more.empty()) return;
        write_stdout(to_terminal_ ? harmless_text(more) : std::string(more));
        line_open = !more.ends_with('\n');
      };
      std::vector<std::int32_t> tokens = session_.encode(prompt());
      require_room(std::ssize(tokens));
      const ChatAnswer answer = session_.answer(std::move(tokens), parameters_, interrupt_, print);
      if (line_open || answer.text.empty()) write_stdout("\n");
      conversation_.add_answer(answer.text, end_of(answer));
      comment(answer);
      if (interrupt_.interrupted() && (!from_terminal_ || interrupt_.signal() != SIGINT))
        throw Interrupted{interrupt_.signal()};
      interrupt_.rearm();
    } catch (const Interrupted&) {
      throw;
    } catch (...) {
      conversation_ = before;
      throw;
    }
  }

  static Conversation::End end_of(const ChatAnswer& answer) {
    if (answer.end == ChatAnswer::End::stop) return Conversation::End::whole;
    return answer.end == ChatAnswer::End::interrupted ? Conversation::End::interrupted : Conversation::End::length;
  }

  void comment(const ChatAnswer& answer) const {
    if (answer.end == ChatAnswer::End::interrupted && from_terminal_) note("stopped");
    if (answer.end == ChatAnswer::End::max_tokens)
      note(
          fmt::format("the answer ended at max_tokens ({}); /params max_tokens=N allows more", parameters_.max_tokens));
    if (answer.end == ChatAnswer::End::context)
      note(
          fmt::format("the answer ended where the context of {} tokens does: {}", session_.max_length(), at_the_end()));
    if (options_.verbose)
      note(fmt::format("{} of {} prompt tokens were in the cache; {}",
                       answer.num_prompt_tokens - answer.num_computed_tokens, answer.num_prompt_tokens,
                       answer.speed.summary()));
  }

  const ChatOptions& options_;
  Conversation conversation_;
  ModelChatTemplate chat_template_;
  ChatParameters parameters_;
  bool shifts_;                   // at the context's end
  std::size_t num_left_out_ = 0;  // exchanges that the model no longer sees
  ChatSession& session_;
  InterruptGuard interrupt_;
  int num_failed_ = 0;
  bool from_terminal_ = ::isatty(STDIN_FILENO) != 0;
  bool to_terminal_ = ::isatty(STDOUT_FILENO) != 0;
  bool interrupted_before_ = false;
};

Conversation conversation_of(const ChatOptions& options) {
  Conversation conversation;
  if (options.load) conversation = Conversation(read_conversation(*options.load), *options.load);
  conversation.set_variables(assigned_variables(options.chat_template));
  if (options.system) require_utf8(*options.system, "--system");
  if (options.system) conversation.set_system(options.system);
  return conversation;
}

// An answer ends at the ids of generation_config.json, else of config.json, and at the tokenizer's own end token.
ChatSession::Stops stops_of(const ChatOptions& options, const GenerationDefaults& defaults, const ModelShape& shape,
                            const Tokenizer& tokenizer) {
  ChatSession::Stops stops{.ids = stop_ids_of(options.sampling, defaults, shape),
                           .texts = options.sampling.stop,
                           .biases = options.sampling.logit_bias};
  if (const auto eos = tokenizer.eos_id(); eos && !options.sampling.ignore_eos) stops.ids.push_back(*eos);
  return stops;
}

void chat(const ChatOptions& options) {
  if (followed(options.model)) return;
  const std::unique_ptr<ModelSource> source = open_model(options.model.model);
  const Tokenizer tokenizer = load_tokenizer(options.model.model);
  ModelChatTemplate chat_template = load_template(options.model.model, options.chat_template);
  Conversation conversation = conversation_of(options);
  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);
  const ChatParameters parameters{.sampling = sampling_of(options.sampling, defaults),
                                  .max_tokens = options.sampling.max_tokens};

  EngineOptions engine_options{.max_sequences = 1};
  ModelOptions model_options = options.model;
  model_options.verbose = options.verbose;
  RankModels ranks = load(*source, model_options, engine_options);
  ChatSession::Stops stops = stops_of(options, defaults, ranks.front().model->shape(), tokenizer);
  ChatSession session(std::move(ranks), options.model.model, tokenizer, std::move(stops), engine_options,
                      shown_unless(options.model.quiet));
  Chat(options, std::move(conversation), std::move(chat_template), parameters, session).run();
}

}  // namespace

void add_chat(CLI::App& app) {
  const auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Chat with a model; in a pipe, one message per line");
  add_model_options(*command, options->model);
  add_tensor_parallel_options(*command, options->model);
  add_limit_options(*command, options->model, Sequences::one);
  add_sampling_options(*command, options->sampling);
  command->add_option("--system", options->system, "System message")->type_name("TEXT");
  command->add_option("--load", options->load, "Go on with a conversation that /save wrote")->type_name("FILE");
  command->add_flag("--shift", options->shift,
                    "At the context's end, leave out the oldest messages instead of stopping");
  add_template_options(*command, options->chat_template);
  auto* verbose = command->add_flag("--verbose", options->verbose, "After each answer, say how fast it was");
  verbose->excludes(command->add_flag("--quiet", options->model.quiet, "No greeting and no progress"));
  command->footer("In the conversation:\n" + std::string(kHelp) +
                  "Special tokens in a message are parsed, as transformers does.");
  command->callback([options, command] {
    options->model.given = given_options(*command);
    chat(*options);
  });
}

}  // namespace heddle

// heddle serve: an OpenAI-compatible server.
#include "server/serve.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/launched.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/template_options.h"
#include "engine/generation_defaults.h"
#include "engine/warm_up.h"
#include "machine/cpu.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "machine/measure.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

struct ServeCommand {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> names;
  std::optional<std::string> api_keys, admin_keys, tls_cert, tls_key;
  int max_queue = 256;
  int max_connections = 4096;
  int drain_seconds = 30;
  int request_seconds = 3600;
  int step_seconds = 300;
  std::optional<int> hold_percent;
  bool no_prefix_cache = false;
  bool log_requests = false;
  std::string tool_format = "auto";
  std::string reasoning = "auto";
  TemplateOptions chat_template;
};

constexpr int kDefaultSequences = 256;
constexpr int kGpuHoldPercent = 50;  // docs/notes/serving.md

// On a GPU, else the first requests would wait for each size of step.
void warm(Engine& engine, const EngineOptions& options) {
  try {
    warm_up(engine,
            {.sequences = options.max_sequences, .step_tokens = step_limits(engine.device(), options).max_tokens});
  } catch (const Failure& failure) {
    log_warning("steps could not be run ahead, and requests will be slower at first: {}", failure.what());
  }
}

std::string default_name(const std::string& model) {
  if (model.starts_with("synth:")) return model;
  const std::filesystem::path path(model);
  const std::string last = path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
  return std::filesystem::exists(path) && !last.empty() ? last : model;
}

std::optional<ModelChatTemplate> find_template(const ServeCommand& command) {
  try {
    return load_template(command.model.model, command.chat_template);
  } catch (const ModelChatTemplate::Missing&) {
    return std::nullopt;
  } catch (const InputError& error) {
    if (command.chat_template.file) throw;
    log_warning("{}; /v1/chat/completions will answer with an error", error.what());
    return std::nullopt;
  }
}

server::ToolFormat tool_format(const std::string& name, const Tokenizer& tokenizer) {
  if (name == "hermes") return server::ToolFormat::tagged;
  if (name == "llama3_json") return server::ToolFormat::json;
  if (name == "none") return server::ToolFormat::none;
  if (tokenizer.id_of("<tool_call>")) return server::ToolFormat::tagged;
  return tokenizer.id_of("<|python_tag|>") ? server::ToolFormat::json : server::ToolFormat::none;
}

// Of the devices' memories together, of which each counts once; 0: unknown.
double memory_rate(const std::vector<Device>& devices_of_ranks, int threads) {
  const std::set<Device> devices(devices_of_ranks.begin(), devices_of_ranks.end());
  try {
    if (devices.begin()->kind == DeviceKind::cpu) {
      TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
      return memory_bandwidth_gbps(store, threads);
    }
    const GpuDiscovery found = discover_gpus();
    double sum = 0;
    for (const Device& device : devices) {
      const auto index = static_cast<std::size_t>(device.index);
      if (index >= found.gpus.size()) return 0;
      sum += found.gpus[index].memory_bandwidth_gbps;
    }
    return sum;
  } catch (const Failure&) {  // too little memory to measure
    return 0;
  }
}

// Raises the soft limit of open files for so many connections and what else the process opens, as far as the hard limit
// allows. Returns how many connections there can be, with a warning if those are fewer.
int allow_connections(int wanted) {
  constexpr rlim_t kOtherFiles = 256;  // the model's, GPUs', and connections for health
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t needed = static_cast<rlim_t>(wanted) + kOtherFiles;
  if (limit.rlim_cur < needed) {
    rlimit raised = limit;
    raised.rlim_cur = std::min(needed, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= needed) return wanted;
  const auto fit = static_cast<int>(limit.rlim_cur - std::min(kOtherFiles, limit.rlim_cur / 2));
  log_warning("--max-connections {}: the system allows {} open files (ulimit -Hn), so there are {} connections at most",
              wanted, limit.rlim_cur, fit);
  return std::max(1, fit);
}

server::HttpOptions http_options(const ServeCommand& command) {
  if (command.tls_cert.has_value() != command.tls_key.has_value())
    throw InputError("--tls-cert and --tls-key go together");
  server::HttpOptions http{.host = command.host,
                           .port = static_cast<std::uint16_t>(command.port),
                           .max_connections = allow_connections(command.max_connections)};
  if (command.tls_cert) http.tls = server::TlsFiles{*command.tls_cert, *command.tls_key};
  return http;
}

// A step that never returns cannot be waited for, nor the memory released that it uses: ends the process at once then.
void end_without(server::EngineLoop& loop) {
  constexpr std::chrono::seconds kLastStep{10};
  if (loop.stop_within(kLastStep)) return;
  write_stderr("heddle: error: the engine's last step has not returned: ending without it\n");
  std::_Exit(EXIT_FAILURE);
}

int serve(const ServeCommand& command) {
  require_no_run("serve");
  server::ServeOptions options{.http = http_options(command),
                               .drain_limit = std::chrono::seconds(command.drain_seconds),
                               .note = [](const std::string& line) { write_stderr("heddle: " + line + "\n"); }};
  options.http.note = options.note;
  server::ServiceOptions& service = options.service;
  if (command.api_keys) service.access.api_keys = server::ApiKeys::read(*command.api_keys);
  if (command.admin_keys) service.access.admin_keys = server::ApiKeys::read(*command.admin_keys);
  const bool local = server::is_loopback(command.host);
  if (!local && !command.api_keys)
    log_warning("--host {} without --api-keys: whoever reaches this machine may use the model", command.host);
  service.access.only_local_hosts = local && !command.api_keys;
  service.model_names = command.names;
  if (service.model_names.empty()) {
    service.model_names = {default_name(command.model.model)};
    service.other_names = {command.model.model};
  }
  const std::string name = service.model_names.front();
  service.max_sequences = command.model.max_sequences.value_or(kDefaultSequences);
  service.max_queue = command.max_queue;
  service.request_limit = std::chrono::seconds(command.request_seconds);
  service.step_limit = std::chrono::seconds(command.step_seconds);
  if (command.log_requests) service.log = options.note;

  const std::unique_ptr<ModelSource> source = open_model(command.model.model);
  Tokenizer tokenizer = load_tokenizer(command.model.model);
  service.tools = tool_format(command.tool_format, tokenizer);
  service.reasons = command.reasoning == "think" || (command.reasoning == "auto" && tokenizer.id_of("</think>"));
  service.memory_gbps =
      memory_rate(devices_of(*source, command.model), num_threads(command.model, discover_cpu().usable_threads));
  GenerationDefaults defaults;
  if (const auto config = source->generation_config()) defaults = read_generation_defaults(*config);

  ModelOptions model = command.model;
  model.max_sequences = service.max_sequences;
  const bool on_gpu = device_of(*source, model).kind == DeviceKind::cuda;
  const PromptHold hold{.percent = command.hold_percent.value_or(on_gpu ? kGpuHoldPercent : 0)};
  const Engine* engine_made = nullptr;  // the server's, and its loop's alone until that has ended
  const auto make_engine = [&source, &engine_made, model, hold, prefix_cache = !command.no_prefix_cache] {
    EngineOptions engine{.max_sequences = *model.max_sequences, .prefix_cache = prefix_cache, .hold = hold};
    RankModels ranks = load(*source, model, engine);
    auto made = std::make_unique<Engine>(std::move(ranks), engine);
    if (made->device().kind == DeviceKind::cuda) warm(*made, engine);
    engine_made = made.get();
    return made;
  };
  server::Server server(std::move(options), {.tokenizer = std::move(tokenizer),
                                             .chat_template = find_template(command),
                                             .defaults = defaults,
                                             .make_engine = make_engine});
  write_stdout(fmt::format("heddle: serving {} at {}\n", name, server.http().address()));
  const int signal = server.run();
  end_without(server.service().loop());
  if (engine_made != nullptr) report_parts(*engine_made, model);
  return signal;
}

void add_server_options(CLI::App& app, ServeCommand& command) {
  app.add_option("--host", command.host, "Address to listen on; 0.0.0.0: all")->capture_default_str();
  add_number_option<int>(app, "--port", command.port, "Port; 0: any that is free", {.min = 0, .max = 65535})
      ->default_str("8000");
  app.add_option("--served-model-name", command.names, "Names of the model in requests; answers have the first")
      ->type_name("NAME");
  app.add_option("--api-keys", command.api_keys, "Keys that requests need, one a line; without, none")
      ->type_name("FILE");
  app.add_option("--admin-keys", command.admin_keys, "Keys that /metrics and /live need instead")->type_name("FILE");
  app.add_option("--tls-cert", command.tls_cert, "Certificate chain in PEM: serve HTTPS")->type_name("FILE");
  app.add_option("--tls-key", command.tls_key, "Its private key in PEM")->type_name("FILE");
  add_number_option<int>(app, "--max-queue", command.max_queue,
                         "Answers that wait beyond those that run; more requests are answered by 429",
                         {.min = 0, .max = 1 << 20})
      ->default_str("256");
  add_number_option<int>(app, "--max-connections", command.max_connections, "Connections at once",
                         {.min = 1, .max = 1 << 20})
      ->default_str("4096");
  add_number_option<int>(app, "--drain-seconds", command.drain_seconds,
                         "After SIGTERM or SIGINT, answers under way may take this long", {.min = 0, .max = 86400})
      ->default_str("30");
  add_number_option<int>(app, "--request-seconds", command.request_seconds,
                         "A request that has waited and run so long ends with an error; 0: no limit",
                         {.min = 0, .max = 1 << 30})
      ->default_str("3600");
  add_number_option<int>(app, "--step-seconds", command.step_seconds,
                         "A step of the engine that takes so long counts as lost: every request fails; 0: no limit",
                         {.min = 0, .max = 1 << 30})
      ->default_str("300");
  add_number_option<int>(
      app, "--hold-prompts", command.hold_percent,
      "While more than 32 answers run, new prompts wait until they are so many percent of all: tokens "
      "come more evenly, first tokens later; 0: never; default 50 on a GPU, 0 on the CPU",
      {.min = 0, .max = 100});
  app.add_flag("--no-prefix-cache", command.no_prefix_cache, "Keep no keys and values of ended requests");
  app.add_flag("--log-requests", command.log_requests, "A line for each answer: tokens and seconds, never texts");
  app.add_option("--tool-format", command.tool_format, "How the model writes calls of tools")
      ->check(CLI::IsMember({"auto", "hermes", "llama3_json", "none"}))
      ->capture_default_str();
  app.add_option("--reasoning-format", command.reasoning, "Whether the model writes its reasoning in <think>")
      ->check(CLI::IsMember({"auto", "think", "none"}))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app) {
  const auto command = std::make_shared<ServeCommand>();
  CLI::App* serve_app = app.add_subcommand("serve", "Serve a model over HTTP, as OpenAI's API does");
  add_model_options(*serve_app, command->model);
  add_tensor_parallel_options(*serve_app, command->model);
  add_limit_options(*serve_app, command->model, Sequences::one);
  add_number_option<int>(*serve_app, "--max-sequences", command->model.max_sequences,
                         "Answers that run at once; others wait; default 256", {.min = 1, .max = 1 << 12});
  add_server_options(*serve_app, *command);
  add_template_options(*serve_app, command->chat_template);
  serve_app->add_flag("--verbose", command->model.verbose,
                      "Say on standard error where the model runs, why there, and what memory it takes; at the end "
                      "which steps were in two parts");
  serve_app->footer(
      "The first SIGTERM or Ctrl-C lets answers finish, for --drain-seconds at most; the second ends at once.\n"
      "docs/serve.md lists the routes and parameters.");
  serve_app->callback([command] {
    command->model.quiet = true;
    if (const int signal = serve(*command)) throw Interrupted{signal};
  });
}

}  // namespace heddle

#include "server/running_server.h"

#include <filesystem>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle::server {
namespace {

using nlohmann::json;

const std::filesystem::path kModel = std::filesystem::path(HEDDLE_SOURCE_DIR) / "assets/demo-llama";

constexpr std::int32_t kEnd = 1;  // the model's end token

class FaultyModel : public Model {
 public:
  explicit FaultyModel(std::shared_ptr<Steps> steps)
      : model_(load_model(Checkpoint(kModel), {})), steps_(std::move(steps)) {}
  const ModelShape& shape() const override { return model_->shape(); }
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) override {
    if (execution.compute.dry_run != nullptr) return model_->run(step, kv, arena, execution);
    meet_fault();
    const Tensor logits = model_->run(step, kv, arena, execution);
    if (logits.rows > 0 && !steps_->answer.empty()) dictate(logits, execution.compute.stream);
    return logits;
  }

 private:
  void meet_fault() {
    while (steps_->blocked) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const int left = steps_->num_failures;
    if (left == 0) return;
    steps_->num_failures = left - 1;
    if (steps_->fault == Steps::Fault::lost_device) throw LostDevice("the GPU has fallen off the bus");
    if (steps_->fault == Steps::Fault::timeout) throw Timeout("a rank has not answered");
    throw Failure("a step that fails");
  }

  void dictate(const Tensor& logits, Stream& stream) {
    constexpr float kCertain = 1e4F;
    float* logit = static_cast<float*>(logits.data) + steps_->answer.front();
    stream.enqueue([logit](ThreadPool&) { *logit += kCertain; });
    steps_->answer.pop_front();
  }

  std::unique_ptr<Model> model_;
  std::shared_ptr<Steps> steps_;
};

}  // namespace

ServedModel demo_model(int max_sequences, std::int64_t kv_bytes, const std::shared_ptr<Steps>& steps) {
  return {
      .tokenizer = Tokenizer::load(kModel),
      .chat_template = ModelChatTemplate::load(kModel),
      .defaults = {.sampling = {}, .eos_ids = {kEnd}},
      .make_engine = [max_sequences, kv_bytes, steps] {
        return std::make_unique<Engine>(
            std::make_unique<FaultyModel>(steps),
            EngineOptions{.max_sequences = max_sequences, .page_size = 16, .kv_bytes = kv_bytes, .prefix_cache = true});
      }};
}

Running::Running(ServeOptions options, std::int64_t kv_bytes) {
  options.handles_signals = false;
  if (options.service.model_names.empty()) options.service.model_names = {"demo"};
  server_ = std::make_unique<Server>(options, demo_model(options.service.max_sequences, kv_bytes, steps_));
  thread_ = std::thread([this] { server_->run(); });
  while (get("/ready").status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

Running::~Running() {
  stop();
  thread_.join();
}

void Running::let_answer(const std::string& text) {
  const json tokens = post("/tokenize", {{"prompt", text}, {"add_special_tokens", false}}).json()["tokens"];
  steps_->answer = tokens.get<std::deque<std::int32_t>>();
  steps_->answer.push_back(kEnd);
}

json Running::idle() const {
  for (int i = 0; i < 1000; ++i) {
    json state = live();
    if (state["queue"]["outstanding"] == 0 && state["batch"]["running"] == 0 && state["queue"]["waiting"] == 0)
      return state;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

LongAnswer::LongAnswer(const Running& server) {
  constexpr std::size_t kTokens = 1'500'000;
  const json id = server.post("/tokenize", {{"prompt", " little"}, {"add_special_tokens", false}}).json()["tokens"][0];
  const std::string text = server.post("/detokenize", {{"tokens", {id}}}).json()["prompt"];
  const std::string number = id.dump();
  std::string body = "{\"tokens\":[" + number;
  body.reserve(16 + (number.size() + 1) * kTokens);
  for (std::size_t i = 1; i < kTokens; ++i) body.append(",").append(number);
  request = http_text("POST", "/detokenize", body + "]}");
  fewest_bytes = kTokens * text.size();
}

json story(int max_tokens) {
  return {{"model", "demo"},
          {"prompt", "Once upon a time"},
          {"max_tokens", max_tokens},
          {"temperature", 0.8},
          {"seed", 5},
          {"ignore_eos", true}};
}

std::string text_of(const std::vector<nlohmann::json>& events) {
  std::string text;
  for (const json& event : events)
    for (const json& choice : event["choices"])
      if (choice.contains("text"))
        text += choice["text"].get<std::string>();
      else if (choice["delta"].contains("content") && choice["delta"]["content"].is_string())
        text += choice["delta"]["content"].get<std::string>();
  return text;
}

}  // namespace heddle::server

// Heddle as a library: a model's folder in, text out.
//
//   heddle::TextModel model("assets/demo-llama");
//   model.submit({.prompt = model.encode("Once upon a time")});
//   while (!model.idle())
//     for (const heddle::TextPiece& piece : model.step()) std::cout << piece.text;
//
// find_package(heddle), then link heddle::heddle. A program needs this header alone, and it keeps its meaning within a
// minor version (0.2.x). Heddle's other headers are installed beside it and may change at any time.
// Errors are exceptions (base/error.h), whose what() is one line: InputError, the caller's folder or request is wrong;
// Failure, the machine could not do it. Both are std::runtime_error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace heddle {

struct TextModelOptions {
  std::string device = "auto";              // "cpu", "cuda" or "cuda:N"; auto: a GPU that the model fits, else the CPU
  int threads = 0;                          // of the CPU; 0: all that this process may use
  int max_sequences = 64;                   // computed together; further requests wait
  std::optional<std::int64_t> kv_bytes;     // of the KV cache; nothing: a quarter of the memory, on a GPU what is free
  std::optional<std::int64_t> max_context;  // tokens of a sequence, prompt and text; nothing: the model's context
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct TextRequest {
  std::vector<std::int32_t> prompt;                         // token ids, from encode() or encode_chat()
  std::int64_t max_tokens = 256;                            // to generate; the end of the context may come first
  std::vector<std::string> stop;                            // the text ends before the first of these
  std::vector<std::int32_t> stop_ids;                       // token ids that end the text, too
  bool ignore_eos = false;                                  // the model's own end tokens do not end the text
  std::vector<std::pair<std::int32_t, double>> logit_bias;  // added to the logits of these token ids; -1000 to 1000
  // What is not set here is as in the model's generation_config.json, and greedy if that does not say.
  std::optional<double> temperature;  // 0: greedy
  std::optional<std::int32_t> top_k;  // 0: all
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  // The same prompt and seed give the same text. Nothing: one of the request's own, so that copies of a prompt get
  // different texts; the n-th request of a model has the same one in every run of a program.
  std::optional<std::uint64_t> seed;
};

// stop: at the model's end-of-text token or a stop string. length: at max_tokens or the context's end. error: the
// model's logits were not finite; other requests continue.
enum class TextEnd : std::uint8_t { stop, length, error };

// What one step adds to one request.
struct TextPiece {
  std::int64_t request = 0;    // what submit() returned
  std::string text;            // whole UTF-8 characters that are final; may be empty
  std::int32_t token = -1;     // the id that was sampled; -1 where end is error
  std::optional<TextEnd> end;  // set on a request's last piece
  std::string error;           // the reason, where end is error
};

// A model in memory with its tokenizer, its chat template and the requests that it works on. Not thread-safe. Tokens
// do not depend on what else is computed at the time; on a GPU, low-order bits of logits may.
class TextModel {
 public:
  // `model`: a folder in Hugging Face's layout (config.json, *.safetensors, tokenizer.json), "ORG/NAME" for a model in
  // Hugging Face's cache, or "synth:NAME" for random weights. Loads it before it returns. Throws InputError where the
  // folder or an option is wrong or the architecture is not supported, Failure where there is no such device or too
  // little memory.
  explicit TextModel(const std::string& model, const TextModelOptions& options = {});
  TextModel(TextModel&&) noexcept;
  TextModel& operator=(TextModel&&) noexcept;
  ~TextModel();

  const Tokenizer& tokenizer() const;

  // The text as token ids, with the tokens that the model wants at the beginning. Special tokens in it are parsed.
  // Throws InputError where it is not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // A conversation as token ids, written by the model's chat template up to where the assistant answers. Throws
  // InputError where the model has no template or the template rejects the conversation.
  std::vector<std::int32_t> encode_chat(std::span<const ChatMessage> messages) const;

  // The same from JSON: an array of messages, or {"messages": [...], "tools": [...], "documents": [...]}.
  std::vector<std::int32_t> encode_chat(std::string_view json) const;

  // Prompt and text together have at most as many tokens: the model's context, or the KV cache where that is less.
  std::int64_t max_length() const;

  // Queues a request and returns its id. Throws InputError where the prompt is empty or too long, or a parameter is out
  // of range; other requests are not affected.
  std::int64_t submit(const TextRequest& request);

  // Drops a request. Does nothing for one that has ended.
  void cancel(std::int64_t request);

  // Advances all requests by a token, and computes waiting prompts as far as a step has room. Returns what was added,
  // valid until the next call; may be empty while long prompts are computed. Throws Failure when the device fails.
  std::span<const TextPiece> step();

  bool idle() const;  // no request is left

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle

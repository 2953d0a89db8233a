// heddle tokenize: text to ids and back, using the tokenizer's files only.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/jsonl.h"
#include "cli/model_options.h"
#include "cli/output.h"

namespace heddle {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

struct TokenizeOptions {
  std::string model;
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool decode = false;
  bool no_special = false;
  bool json = false;
};

// "1, 2 3" -> 1, 2, 3
Ids parse_ids(std::string_view text) {
  constexpr std::string_view kSeparators = " ,\t\r\n";
  Ids ids;
  for (std::size_t begin; (begin = text.find_first_not_of(kSeparators)) != std::string_view::npos;) {
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kSeparators));
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size())
      throw_error<InputError>("{} is not a token id", shorten(json(word)));
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
  return ids;
}

Ids read_ids(const JsonField& field) {
  Ids ids;
  for (const JsonField& element : field.elements())
    ids.push_back(static_cast<std::int32_t>(element.integer(0, std::numeric_limits<std::int32_t>::max())));
  return ids;
}

class Command {
 public:
  explicit Command(const TokenizeOptions& options) : options_(options), tokenizer_(load_tokenizer(options.model)) {}

  // Converts everything before it writes anything.
  void run() {
    if (options_.text) {
      convert("--text", [&] { options_.decode ? decode(parse_ids(*options_.text)) : encode(*options_.text); });
    } else {
      const InputText input = given_input(options_.file, kMaxLinesBytes, kTextRequired);
      if (is_plain_text(options_.file.value_or("-"), input.text))
        convert(input.where, [&] { options_.decode ? decode(parse_ids(input.text)) : encode(input.text); });
      else
        convert_lines(input);
    }
    write_stdout(out_);
  }

 private:
  void convert_lines(const InputText& input) {
    for (const JsonLine& line : parse_jsonl(input.text, input.where)) {
      const JsonField root(line.object, line.where);
      if (options_.decode) {
        const Ids ids = read_ids(root.at("ids"));
        convert(line.where, [&] { decode(ids); });
      } else {
        const std::string text = root.at("text").text();
        convert(line.where, [&] { encode(text); });
      }
    }
  }

  // Adds the name of the input to errors.
  template <class Conversion>
  static void convert(const std::string& where, Conversion conversion) {
    try {
      conversion();
    } catch (const InputError& error) {
      throw_error<InputError>("{}: {}", where, error.what());
    }
  }

  void encode(std::string_view text) {
    const Ids ids = tokenizer_.encode(text, options_.no_special ? SpecialTokens::omit : SpecialTokens::add);
    out_ += options_.json ? json{{"ids", ids}}.dump() : fmt::format("{}", fmt::join(ids, " "));
    out_ += '\n';
  }

  void decode(const Ids& ids) {
    const std::string text = tokenizer_.decode(ids, options_.no_special ? Specials::skip : Specials::keep);
    out_ += options_.json ? json{{"text", text}}.dump() : text;
    out_ += '\n';
  }

  const TokenizeOptions& options_;
  Tokenizer tokenizer_;
  std::string out_;
};

}  // namespace

void add_tokenize(CLI::App& app) {
  const auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  add_model_option(*command, options->model,
                   "Folder with tokenizer.json, ORG/NAME in the cache of Hugging Face, or synth:NAME");
  auto* input = command->add_option_group("input", "One of, or a text on standard input");
  input->add_option("--text", options->text, "The text; with --decode, ids separated by spaces or commas")
      ->type_name("TEXT");
  input
      ->add_option("--file", options->file,
                   "One plain text, or JSON lines, {\"text\": ...}; with --decode ids, or {\"ids\": [...]}: *.jsonl, "
                   "*.json and what begins with a brace, unless it is called *.txt; - is standard input")
      ->type_name("FILE");
  input->require_option(0, 1);
  command->add_flag("--decode", options->decode, "From ids to text");
  command->add_flag("--no-special", options->no_special,
                    "Encode without the tokens that the tokenizer adds; decode without special tokens");
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options] { Command(*options).run(); });
}

}  // namespace heddle

// 08. Heddle as a library: several prompts are continued together, or one message of a chat is answered.
//   08_generate MODEL PROMPT...           08_generate MODEL --chat MESSAGE
#include <heddle/heddle.h>

#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::cerr << "usage: 08_generate MODEL PROMPT... | 08_generate MODEL --chat MESSAGE\n";
    return 2;
  }
  heddle::TextModel model(arguments[0]);

  std::map<std::int64_t, std::string> texts;  // by request
  if (arguments[1] == "--chat" && arguments.size() == 3) {
    const std::vector<heddle::ChatMessage> messages{{.role = "user", .content = arguments[2]}};
    texts[model.submit({.prompt = model.encode_chat(messages)})];
  } else {
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      const std::int64_t request = model.submit({.prompt = model.encode(arguments[i]), .max_tokens = 100});
      texts[request] = arguments[i];
    }
  }
  while (!model.idle()) {
    for (const heddle::TextPiece& piece : model.step()) {
      texts[piece.request] += piece.text;
      if (piece.end == heddle::TextEnd::error) std::cerr << "error: " << piece.error << "\n";
    }
  }
  for (const auto& [request, text] : texts) std::cout << text << "\n";
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}

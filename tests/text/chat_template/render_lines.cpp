// Renders JSON lines {"template", "variables"} from standard input as {"text"} or {"error"}: the counterpart of
// tools/goldens/make_chat_templates.py --compare.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/chat_template/chat_template.h"

int main() {
  std::tm time{};
  time.tm_year = 124, time.tm_mon = 6, time.tm_mday = 26, time.tm_hour = 12, time.tm_min = 34, time.tm_sec = 56;
  time.tm_wday = 5, time.tm_yday = 207;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::ordered_json result;
    try {
      const auto input = nlohmann::ordered_json::parse(line);
      const auto parsed = heddle::ChatTemplate::parse(input.at("template").get<std::string>(), "template");
      result["text"] = parsed.render(input.at("variables"), {.limits = {}, .local_time = time});
    } catch (const heddle::InputError& error) {
      result["error"] = error.what();
    }
    std::cout << result.dump(-1, ' ', true) << std::endl;
  }
}

// The subcommands of `heddle`. Each registers its options and, as CLI11's callback, the work; errors are thrown.
#pragma once

namespace CLI {
class App;
}

namespace heddle {

void add_generate(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_inspect(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace heddle

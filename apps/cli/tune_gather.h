// heddle tune all-gather-linear
#pragma once

namespace CLI {
class App;
}

namespace heddle {

void add_tune_gather(CLI::App& tune);

}  // namespace heddle

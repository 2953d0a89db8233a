// bench sequence-attention: the figures of the StreamFusion paper, for attention layers.
#pragma once

namespace CLI {
class App;
}

namespace heddle {

void add_sequence_attention_benchmark(CLI::App& bench);

}  // namespace heddle

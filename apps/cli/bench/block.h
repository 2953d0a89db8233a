// heddle bench block: the attention block of a decoding step, fused (fused/decode_block.h) and as separate operators.
#pragma once

namespace CLI {
class App;
}

namespace heddle {

void add_block_benchmark(CLI::App& bench);

}  // namespace heddle

// heddle bench serve and heddle bench throughput.
#pragma once

namespace CLI {
class App;
}

namespace heddle {

// The load of a server that speaks OpenAI's protocol: latencies and throughput at each rate or concurrency.
void add_serve_benchmark(CLI::App& bench);

// Many requests through the engine at once, without a server.
void add_throughput_benchmark(CLI::App& bench);

}  // namespace heddle

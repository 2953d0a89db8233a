// The predicted time of a layer: the programs of all ranks, executed with rates instead of memory.
#pragma once

#include <vector>

#include "parallel/sequence/program.h"

namespace heddle {

// What a GPU, a link and a message cost. The defaults are the StreamFusion paper's machines: 8 A100 that attend at 200
// TFLOP/s, NVSwitch, and 400 Gbit/s out of a machine.
struct SequenceRates {
  double attention_flops = 200e12;  // a GPU's
  double memory_bytes = 1.3e12;     // a second, read or written: heads that are split and joined, state that is carried
  double gpu_link_bytes = 250e9;    // a second, from GPU to GPU inside a machine
  double machine_link_bytes = 50e9;  // a second, out of a machine and into it, shared by its GPUs
  double call_seconds = 8e-6;        // of each kernel, beside its work
  double local_seconds = 5e-6;       // of each transfer and message inside a machine, beside its bytes
  double remote_seconds = 15e-6;     // of each between machines, and of a barrier that spans machines
};

struct SequenceTimeline {
  double seconds = 0;          // until the last rank has its output
  double compute_seconds = 0;  // of the rank that computes longest: the layer's time were transfers free
  double exposed_seconds = 0;  // the difference
};

// What an operation of `rank` computes for: of split, join and attend; 0 of all others.
double sequence_compute_seconds(const SequenceMemory& memory, int rank, const SequenceOp& op,
                                const SequenceRates& rates);

// Event-driven: each lane of each rank runs its operations in order. A transfer between machines holds the sender's way
// out and the receiver's way in, which serve one after the other in the order of arrival. Transfers inside a machine do
// not meet. Throws InvalidArgument when the programs wait in a circle.
SequenceTimeline predict_sequence(const SequenceMemory& memory, const std::vector<SequenceProgram>& programs,
                                  const SequenceRates& rates);

}  // namespace heddle

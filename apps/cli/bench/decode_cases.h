// Which decode steps `heddle tune decode` measures, and which it leaves out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "parallel/decode_choice.h"

namespace heddle {

// Steps of each number of texts with each number of tokens, in this order; none is measured yet.
std::vector<DecodeSample> decode_cases(const std::vector<int>& batches, const std::vector<int>& contexts);

// Leaves out those that do not fit into `available` bytes together with the ones before them that do. bytes_of(steps): what
// they take together.
void leave_out_too_large(std::vector<DecodeSample>& samples, std::size_t available,
                         FunctionRef<std::size_t(const std::vector<DecodeSample>&)> bytes_of);

// Why a step is left out whose measurement takes so many seconds when so many are left. Empty: it is measured.
std::string why_too_long(double seconds, double left);

}  // namespace heddle

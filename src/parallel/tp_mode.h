// How the ranks of tensor parallelism add what each block leaves pending: `--tp-mode`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

class Fabric;

enum class TpMode : std::uint8_t {
  automatic,  // what the machine's tuned store says; what it stands for otherwise: choose_mode
  standard,   // an all-reduce, by NCCL where each rank has its own GPU, else by the fastest algorithm, then the norm
  symmetric,  // Heddle's all-reduce over peer memory, then the norm
  fused,      // all-reduce, residual and norm in one operator; the residual is sharded by token
  weave,      // fused or standard, in two parts of the step: one computes while the other is summed
  sequence,   // norms divided by token: all-gather + GEMM behind them, GEMM + reduce-scatter before them, fused; small
              // steps as fused, where that was measured to be faster
  no_comm     // nothing crosses ranks: for measurements alone, because the text is wrong
};

std::string_view name_of(TpMode mode);  // "default"
std::optional<TpMode> tp_mode_named(std::string_view name);
std::vector<std::string> tp_mode_names();  // of all, automatic first

// Whether its ranks have an AllReduceNorm (fused/all_reduce_norm).
bool uses_all_reduce_norm(TpMode mode);

// Throws InputError, naming the mode, where it cannot run over the fabric.
void require_tp_mode(TpMode mode, const Fabric& fabric);

}  // namespace heddle

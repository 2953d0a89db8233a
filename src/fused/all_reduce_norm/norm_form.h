// How a call of AllReduceNorm runs, on every rank alike.
#pragma once

#include "fused/all_reduce_norm/all_reduce_norm.h"

namespace heddle {

struct NormForm {
  AllReduceNormRegime regime;
  bool direct;  // a pipelined call, by DirectNorm
  int blocks;
};

}  // namespace heddle

// The runs on WSE-2 that the WaferLLM paper published. Rows of two models and a column of GEMV are held out, to judge
// predictions of them. Plain data; tools/fit_plmr.py has its own copy, and the tests check that both agree.
#pragma once

#include <string_view>

#include "wafer/cost/wafer_predict.h"

namespace heddle::published {

inline constexpr double kWithheld = 0;

// Tables 3 and 4: tokens per second at a context of 4096, on square meshes.
struct Throughput {
  std::string_view model;
  WaferPhase phase;
  WaferMethod method;
  int sides[3];
  double tokens_per_second[3];
};
inline constexpr Throughput kThroughputs[] = {
    {"llama-3-8b", WaferPhase::prefill, WaferMethod::waferllm, {480, 600, 720}, {20320.6, 25037.2, 27686.5}},
    {"llama-3-8b", WaferPhase::prefill, WaferMethod::t10, {480, 600, 720}, {175.0, 156.6, 132.8}},
    {"llama-3-8b", WaferPhase::prefill, WaferMethod::ladder, {480, 600, 720}, {61.8, 42.3, 31.3}},
    {"llama-2-13b", WaferPhase::prefill, WaferMethod::waferllm, {480, 600, 720}, {13685.1, 16854.2, 17498.3}},
    {"llama-2-13b", WaferPhase::prefill, WaferMethod::t10, {480, 600, 720}, {121.3, 100.6, 81.3}},
    {"llama-2-13b", WaferPhase::prefill, WaferMethod::ladder, {480, 600, 720}, {47.3, 33.1, 24.2}},
    {"codellama-34b", WaferPhase::prefill, WaferMethod::waferllm, {480, 600, 720}, {}},
    {"codellama-34b", WaferPhase::prefill, WaferMethod::t10, {480, 600, 720}, {}},
    {"codellama-34b", WaferPhase::prefill, WaferMethod::ladder, {480, 600, 720}, {}},
    {"qwen2-72b", WaferPhase::prefill, WaferMethod::waferllm, {480, 600, 720}, {}},
    {"qwen2-72b", WaferPhase::prefill, WaferMethod::t10, {480, 600, 720}, {}},
    {"qwen2-72b", WaferPhase::prefill, WaferMethod::ladder, {480, 600, 720}, {}},
    {"llama-3-8b", WaferPhase::decode, WaferMethod::waferllm, {420, 540, 660}, {2699.9, 2501.5, 2243.3}},
    {"llama-3-8b", WaferPhase::decode, WaferMethod::t10, {420, 540, 660}, {418.3, 339.4, 265.1}},
    {"llama-3-8b", WaferPhase::decode, WaferMethod::ladder, {420, 540, 660}, {14.6, 13.1, 11.4}},
    {"llama-2-13b", WaferPhase::decode, WaferMethod::waferllm, {420, 540, 660}, {2039.2, 1899.4, 1739.8}},
    {"llama-2-13b", WaferPhase::decode, WaferMethod::t10, {420, 540, 660}, {341.8, 270.8, 233.7}},
    {"llama-2-13b", WaferPhase::decode, WaferMethod::ladder, {420, 540, 660}, {11.0, 9.9, 9.0}},
    {"codellama-34b", WaferPhase::decode, WaferMethod::waferllm, {420, 540, 660}, {}},
    {"codellama-34b", WaferPhase::decode, WaferMethod::t10, {420, 540, 660}, {}},
    {"codellama-34b", WaferPhase::decode, WaferMethod::ladder, {420, 540, 660}, {}},
    {"qwen2-72b", WaferPhase::decode, WaferMethod::waferllm, {420, 540, 660}, {}},
    {"qwen2-72b", WaferPhase::decode, WaferMethod::t10, {420, 540, 660}, {}},
    {"qwen2-72b", WaferPhase::decode, WaferMethod::ladder, {420, 540, 660}, {}},
};

// Table 2: end to end, 2048/128, 4096/128, 2048/2048 and 4096/4096 tokens in and out; the last column is cut off in our
// copy. Prefill and decode on 660 and 360 cores a side (llama-3-8b), 750 and 375 (llama-2-13b).
inline constexpr int kEndToEndLengths[4][2] = {{2048, 128}, {4096, 128}, {2048, 2048}, {4096, 4096}};
struct EndToEnd {
  std::string_view model;
  WaferMethod method;
  double tokens_per_second[4];
};
inline constexpr EndToEnd kEndToEnd[] = {
    {"llama-3-8b", WaferMethod::waferllm, {764.4, 604.4, 2370.3, kWithheld}},
    {"llama-3-8b", WaferMethod::t10, {4.6, 4.5, 58.3, kWithheld}},
    {"llama-3-8b", WaferMethod::ladder, {1.2, 1.1, 7.4, kWithheld}},
    {"llama-2-13b", WaferMethod::waferllm, {473.9, 414, 1690.3, kWithheld}},
    {"llama-2-13b", WaferMethod::t10, {2.6, 2.5, 35.0, kWithheld}},
    {"llama-2-13b", WaferMethod::ladder, {0.7, 0.7, 4.9, kWithheld}},
};

// Table 5: tokens, on the decode meshes of table 2.
struct Capacity {
  std::string_view model;
  double concat_tokens, shift_tokens;
};
inline constexpr Capacity kCapacities[] = {{"llama-3-8b", 382, 137548}, {"llama-2-13b", kWithheld, kWithheld}};

// Table 6: milliseconds, on WSE-2 and on 1, 8 and 2 x 8 A100s, and the energy of the A100s relative to the wafer's. The
// text says 280 to 606 times faster than one A100, and 166 to 210 times faster than the best cluster.
struct Gemv {
  int n;
  double wafer_ms;
  double gpu_ms[3], energy_ratio[3];
};
inline constexpr Gemv kGemvs[] = {{16384, 0.0012, {0.336, 0.253, 0.340}, {7.47, 44.97, 120.88}},
                                  {32768, kWithheld, {}, {}}};

// Tables 7 and 8: tokens per second on A100s with SGLang, and the energy of the A100s relative to the wafer's.
inline constexpr int kGpus[3] = {1, 8, 16};
struct GpuThroughput {
  std::string_view model;
  WaferPhase phase;
  int side;
  double tokens_per_second[3], energy_ratio[3];  // 0: not run
};
inline constexpr GpuThroughput kGpuThroughputs[] = {
    {"llama-3-8b", WaferPhase::prefill, 720, {13988, 17361, 13994}, {0.05, 0.34, 0.84}},
    {"llama-2-13b", WaferPhase::prefill, 720, {7805, 12287, 0}, {0.06, 0.30, 0}},
    {"llama-3-8b", WaferPhase::decode, 420, {78, 260, 164}, {0.92, 2.22, 7.02}},
    {"llama-2-13b", WaferPhase::decode, 420, {48, 175, 0}, {1.13, 2.49, 0}},
};
inline constexpr double kGpuWatts = 400;

}  // namespace heddle::published

// How rank 0 chooses the attention of decode steps: separate operators, or one (fused/decode_block.h).
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "parallel/tuned_split.h"
#include "step/step_choices.h"

namespace heddle {

// What a user asks for: `--decode`.
enum class DecodeMode : std::uint8_t {
  automatic,  // what `heddle tune decode` found; otherwise plain
  plain,      // separate operators
  fused       // one operator, wherever it takes the step
};

std::string_view name_of(DecodeMode mode);  // "auto"
std::optional<DecodeMode> decode_mode_named(std::string_view name);
std::vector<std::string> decode_mode_names();  // of all, automatic first

// For people: "separate operators", "one operator, in clusters of 4 blocks"; on the CPU, which has one way, "one operator".
std::string text_of(const DecodeChoice& choice, DeviceKind device);

// Of a step whose attention was measured in every form.
struct DecodeTimes {
  double separate_seconds = 0;
  double fused_seconds = 0;  // the fastest fused form

  friend bool operator==(const DecodeTimes&, const DecodeTimes&) = default;
};

// One line: steps of up to so many tokens, in which no sequence is longer than so many.
struct DecodeLine {
  int up_to_tokens = std::numeric_limits<int>::max();
  int up_to_context = std::numeric_limits<int>::max();
  DecodeChoice choice;
  std::optional<DecodeTimes> times{};  // by which it was chosen; nothing: it was not measured

  friend bool operator==(const DecodeLine&, const DecodeLine&) = default;
};
// The first line that covers a step, and whose choice the model takes, decides; without one, separate operators.
using DecodeTable = std::vector<DecodeLine>;

// Whether any line is fused.
bool has_fused(const DecodeTable& table);

// Why a line's choice was made, for people: "0.905 ms a step, the fastest fused form 1.030 ms". Empty: it was not measured.
std::string why_chosen(const DecodeLine& line);

// The fused forms that a device of this kind is offered, the likeliest first.
std::vector<DecodeChoice> fused_choices(DeviceKind device);

// The table of DecodeMode::fused: the first of fused_choices() that is taken.
DecodeTable forced_decode(DeviceKind device);

// One measured size of a step.
struct DecodeSample {
  struct Fused {
    DecodeChoice choice;
    double seconds = 0;
  };
  int tokens = 0;
  int context = 0;
  double plain_seconds = 0;
  std::vector<Fused> fused;   // those that the model takes; one at least where the step was measured
  std::string left_out = {};  // why it was not measured
};

// Each measured size decides for itself and for smaller ones down to the next, the largest for all above, first by tokens,
// then by contexts. A fused form is chosen where it is the fastest, by one per cent at least, since less is noise. `samples`
// in that order. What was left out decides nothing; empty: all was.
DecodeTable choose_decode(const std::vector<DecodeSample>& samples);

// Of its rows in JSON. Nothing: they are something else.
std::optional<DecodeTable> decode_table_in(const nlohmann::json& rows);

// What `heddle tune decode` has left in the machine's store for a model on so many ranks. Nothing: not tuned, or no table.
std::optional<DecodeTable> tuned_decode(const TunedStore& store, const SplitKey& key);
void put_tuned_decode(TunedStore& store, const SplitKey& key, const DecodeTable& table);

}  // namespace heddle

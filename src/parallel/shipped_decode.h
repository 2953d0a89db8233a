// Tables of `heddle tune decode` that are shipped with Heddle, for machines where it has not run: shipped_decode.json, which
// bench/ship_decode.py makes of tuned stores.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/decode_choice.h"

namespace heddle {

// {GPU: {"from": where it was measured, "models": {shape_name_of(): lines of a table}}}.
std::string_view shipped_decode_json();

struct ShippedDecode {
  DecodeTable table;
  std::string from;  // for people: "commit a6448e11"
};

// Of a GPU of this name. Nothing: there is none for the model's shape and ranks.
std::optional<ShippedDecode> shipped_decode(std::string_view gpu, const SplitKey& key,
                                            std::string_view text = shipped_decode_json());

}  // namespace heddle

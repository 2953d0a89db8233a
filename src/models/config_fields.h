// What the parsers of config.json share: limits of sizes, and fields that every architecture has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace heddle {

// An order of magnitude above the largest models. Larger values are mistakes or attacks.
inline constexpr std::int64_t kMaxLayers = 1 << 10;
inline constexpr std::int64_t kMaxHidden = 1 << 17;
inline constexpr std::int64_t kMaxIntermediate = 1 << 20;
inline constexpr std::int64_t kMaxHeads = 1 << 12;
inline constexpr std::int64_t kMaxHeadWidth = 1 << 10;
inline constexpr std::int64_t kMaxVocab = 1 << 24;
inline constexpr std::int64_t kMaxPosition = 1 << 24;

// Null is not missing: it means "none".
bool is_missing(const JsonField& config, std::string_view key);

// Whether a boolean field is true; missing and null are false.
bool flag(const JsonField& config, std::string_view key);

// An integer of 1 to `max`. Throws InputError that names the field.
int size_from(const JsonField& field, std::int64_t max);

// The same of the field `key`; missing or null: `otherwise`.
int size_or(const JsonField& config, std::string_view key, std::int64_t max, int otherwise);

// Ids of a field that is one id or a list of them. `missing`: the id when the field is missing. Throws InputError for
// an id outside the vocabulary.
std::vector<std::int32_t> token_ids_of(const JsonField& config, std::string_view key, std::int64_t vocab_size,
                                       std::optional<std::int32_t> missing);

// Whether config.json states rope_theta, as transformers 4 or 5 writes it.
bool has_rope_theta(const JsonField& config);

}  // namespace heddle

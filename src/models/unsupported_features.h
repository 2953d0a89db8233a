// Collects features that a config asks for and a model does not support: one sentence per field, with the value found
// and what is supported.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace heddle {

class UnsupportedFeatures {
 public:
  // Reports the field `key` of `config` unless it is one of `supported`; missing and null count as supported.
  void only(const JsonField& config, std::string_view key, std::initializer_list<nlohmann::json> supported);

  // Reports `field`. `supported` ends the sentence: "none", "\"silu\" and \"swish\"".
  void refuse(const JsonField& field, std::string_view supported);

  std::vector<std::string> sentences() && { return std::move(sentences_); }

 private:
  std::vector<std::string> sentences_;
};

}  // namespace heddle

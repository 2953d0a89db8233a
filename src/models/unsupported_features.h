// Collects what a config asks for and a model cannot do: one sentence a field, with the value found and what is
// supported.
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
  // Refuses the field `key` of `config` unless it is one of `supported`; missing or null is as good as supported.
  void only(const JsonField& config, std::string_view key, std::initializer_list<nlohmann::json> supported);

  // `supported` ends the sentence: "none", "\"silu\" and \"swish\"".
  void refuse(const JsonField& field, std::string_view supported);

  std::vector<std::string> sentences() && { return std::move(sentences_); }

 private:
  std::vector<std::string> sentences_;
};

}  // namespace heddle

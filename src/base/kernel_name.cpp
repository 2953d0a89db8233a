#include <string>
#include <string_view>

#include "base/gpu_activity.h"

namespace heddle {
namespace {

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

// Where the name's parameters begin: the first parenthesis that opens outside of template arguments.
std::size_t parameters_of(std::string_view name) {
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return i;
  }
  return name.size();
}

}  // namespace

std::string short_kernel_name(std::string_view demangled) {
  std::string name(demangled);
  erase_all(name, "(anonymous namespace)::");
  erase_all(name, "heddle::");
  erase_all(name, "sm90::");
  if (name.starts_with("void ")) name.erase(0, 5);
  name.resize(parameters_of(name));
  return name;
}

}  // namespace heddle

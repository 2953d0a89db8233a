#include "cli/bench/event_stream.h"

#include <algorithm>

namespace heddle {

bool EventStream::push(std::string_view bytes, const std::function<void(std::string_view data)>& take) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMaxLineBytes) return false;
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      take(line);
    }
    line_.clear();
  }
  return true;
}

}  // namespace heddle

// The data of server-sent events, as the bytes of a stream arrive.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace heddle {

class EventStream {
 public:
  // Longest line that is kept; a longer one makes push return false.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

  // Calls `take` with the text behind each complete "data:" line. Other lines do not matter. False: a line is too long.
  bool push(std::string_view bytes, const std::function<void(std::string_view data)>& take);

 private:
  std::string line_;
};

}  // namespace heddle

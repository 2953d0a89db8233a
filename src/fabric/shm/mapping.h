// Memory pages that threads or processes share.
#pragma once

#include <cstddef>
#include <string_view>

namespace heddle {

class Mapping {
 public:
  // Zeroed pages of this process alone. Both functions throw Failure.
  static Mapping anonymous(std::size_t size_bytes);
  // Maps the open file, which may be closed afterwards; `what` names it in errors.
  static Mapping of_file(int file, std::size_t size_bytes, std::string_view what);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  Mapping(std::byte* data, std::size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_;
  std::size_t size_bytes_;
};

}  // namespace heddle

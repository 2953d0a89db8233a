// The files of the page that the server shows at "/", compiled into the program.
#pragma once

#include <span>
#include <string_view>

namespace heddle::server {

struct PageFile {
  std::string_view path;          // "/", "/app.js"
  std::string_view content_type;  // "text/html; charset=utf-8"
  std::string_view bytes;
};

// Valid as long as the program; may be empty.
std::span<const PageFile> page_files();

}  // namespace heddle::server

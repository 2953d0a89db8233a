# Writes OUTPUT, a source that defines page_files() of server/page.h, from the files of FOLDER.
# cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake
set(files index.html style.css app.js api.js charts.js chat.js conversation.js dom.js live.js)
set(types "html=text/html\; charset=utf-8" "css=text/css\; charset=utf-8" "js=text/javascript\; charset=utf-8")
set(arrays "")
set(entries "")
set(number 0)
foreach(file ${files})
  file(READ ${FOLDER}/${file} bytes HEX)
  string(LENGTH "${bytes}" length)
  math(EXPR size "${length} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(REGEX REPLACE ".*\\." "" extension "${file}")
  foreach(type IN LISTS types)
    if(type MATCHES "^${extension}=(.*)$")
      set(content_type "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  if(file STREQUAL "index.html")
    set(path "/")
  else()
    set(path "/${file}")
  endif()
  string(APPEND arrays "// ${file}\nconstexpr char kFile${number}[] = {\n${bytes}};\n")
  string(APPEND entries "    {\"${path}\", \"${content_type}\", {kFile${number}, ${size}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[// Made by apps/web/embed.cmake.
#include "server/page.h"

namespace heddle::server {
namespace {

@arrays@
constexpr PageFile kFiles[] = {
@entries@};

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

}  // namespace heddle::server
]])

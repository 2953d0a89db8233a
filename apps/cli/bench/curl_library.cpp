#include "cli/bench/curl_library.h"

#include "base/error.h"
#include "base/shared_library.h"

namespace heddle {
namespace {

CurlLibrary load() {
  const SharedLibrary library("libcurl (Debian's package libcurl4)", {"libcurl.so.4"});
  CurlLibrary curl;
  library.find("curl_global_init", curl.global_init);
  library.find("curl_slist_append", curl.slist_append);
  library.find("curl_slist_free_all", curl.slist_free_all);
  library.find("curl_easy_init", curl.easy_init);
  library.find("curl_easy_setopt", curl.easy_setopt);
  library.find("curl_easy_getinfo", curl.easy_getinfo);
  library.find("curl_easy_perform", curl.easy_perform);
  library.find("curl_easy_strerror", curl.easy_strerror);
  library.find("curl_easy_cleanup", curl.easy_cleanup);
  library.find("curl_multi_init", curl.multi_init);
  library.find("curl_multi_add_handle", curl.multi_add_handle);
  library.find("curl_multi_remove_handle", curl.multi_remove_handle);
  library.find("curl_multi_perform", curl.multi_perform);
  library.find("curl_multi_info_read", curl.multi_info_read);
  library.find("curl_multi_poll", curl.multi_poll);
  library.find("curl_multi_cleanup", curl.multi_cleanup);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw Failure("libcurl could not be started");
  return curl;
}

}  // namespace

const CurlLibrary& curl() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace heddle

// libcurl, loaded by the first call that needs it: it brings 25 libraries, whose loading took half of the start of every
// command. Includes curl's header; for the client of `heddle bench serve`.
#pragma once

#include <curl/curl.h>

namespace heddle {

// libcurl's functions under their own names without the prefix.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_cleanup) multi_cleanup;
};

// Loads and starts the library on the first call. Throws Failure when it is not installed or does not start.
const CurlLibrary& curl();

}  // namespace heddle

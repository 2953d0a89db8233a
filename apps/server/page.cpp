#include "server/page.h"

namespace heddle::server {
namespace {

constexpr PageFile kFiles[] = {
    {.path = "/",
     .content_type = "text/html; charset=utf-8",
     .bytes = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Heddle</title>"
              "<h1>Heddle</h1><p>An OpenAI-compatible server: POST to /v1/chat/completions.</p></html>\n"},
};

}  // namespace

std::span<const PageFile> page_files() {
  return kFiles;
}

}  // namespace heddle::server

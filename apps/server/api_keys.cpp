#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace heddle::server {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kFewestBytes = 8, kMostBytes = 512;

}  // namespace

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  if (EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    throw Failure("OpenSSL could not compute a SHA-256 digest");
  return digest;
}

ApiKeys ApiKeys::read(const std::filesystem::path& file) {
  return parse(read_file(file, kMaxFileBytes), file.string());
}

ApiKeys ApiKeys::parse(std::string_view text, std::string_view where) {
  ApiKeys keys;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const bool printable = std::ranges::all_of(line, [](char c) { return c > ' ' && c < 0x7f; });
    if (!printable || line.size() < kFewestBytes || line.size() > kMostBytes)
      throw_error<InputError>("{}:{}: expected a key of {} to {} printable characters without spaces", where, number,
                              kFewestBytes, kMostBytes);
    keys.digests_.push_back(digest_of(line));
  }
  if (keys.empty()) throw_error<InputError>("{}: has no key, expected one a line", where);
  return keys;
}

std::optional<std::uint64_t> ApiKeys::owner_of(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = authorization.size() > kScheme.size() &&
                      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  if (!bearer) return std::nullopt;
  const Digest digest = digest_of(authorization.substr(kScheme.size()));
  std::uint64_t owner = 0;
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    const bool same = CRYPTO_memcmp(digest.data(), digests_[i].data(), digest.size()) == 0;
    if (same) owner = i + 1;  // no early exit
  }
  return owner == 0 ? std::nullopt : std::optional(owner);
}

}  // namespace heddle::server

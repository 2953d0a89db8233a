#include "text/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode_sets.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxNormalizers = 64;
constexpr std::size_t kMostGrowth = 64;

// `tokenizers` normalizes by the tables of Unicode 9. Newer characters stay unchanged there, like letters.
const icu::UnicodeSet& known_characters() {
  static const icu::UnicodeSet set = [] {
    UErrorCode status = U_ZERO_ERROR;
    icu::UnicodeSet known(UNICODE_STRING_SIMPLE("[:age=9.0:]"), status);
    if (U_FAILURE(status)) throw_error<Failure>("ICU has no character data: {}", u_errorName(status));
    known.freeze();
    return known;
  }();
  return set;
}

const icu::Normalizer2& normalizer_of(UnicodeForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = nullptr;
  switch (form) {
    case UnicodeForm::nfc:
      normalizer = icu::Normalizer2::getNFCInstance(status);
      break;
    case UnicodeForm::nfd:
      normalizer = icu::Normalizer2::getNFDInstance(status);
      break;
    case UnicodeForm::nfkc:
      normalizer = icu::Normalizer2::getNFKCInstance(status);
      break;
    case UnicodeForm::nfkd:
      normalizer = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  if (U_FAILURE(status)) throw_error<Failure>("ICU has no normalization data: {}", u_errorName(status));
  return *normalizer;
}

// Marks, and the halfwidth voicing marks, which NFKC and NFKD turn into marks.
bool may_be_reordered(char32_t c) {
  return c >= 0x300 && ((U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0 || c == 0xFF9E || c == 0xFF9F);
}

// The marks of `run`, decomposed and in canonical order. This does not change any normal form.
std::string in_canonical_order(std::string_view run, UnicodeForm form) {
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const icu::Normalizer2& decomposer = normalizer_of(compatible ? UnicodeForm::nfkd : UnicodeForm::nfd);
  const icu::UnicodeSet& known = known_characters();
  const auto combining_class = [&](UChar32 c) { return known.contains(c) ? u_getCombiningClass(c) : 0; };
  std::vector<UChar32> marks;
  while (!run.empty()) {
    const Utf8Char c = first_char(run);
    run.remove_prefix(c.length);
    icu::UnicodeString decomposed;
    const auto mark = static_cast<UChar32>(c.code_point);
    if (!known.contains(mark) || !decomposer.getDecomposition(mark, decomposed)) decomposed.append(mark);
    for (std::int32_t at = 0; at < decomposed.length(); at = decomposed.moveIndex32(at, 1))
      marks.push_back(decomposed.char32At(at));
  }
  for (auto first = marks.begin(); first != marks.end();) {
    const auto last = std::find_if(first, marks.end(), [&](UChar32 mark) { return combining_class(mark) == 0; });
    std::stable_sort(first, last, [&](UChar32 a, UChar32 b) { return combining_class(a) < combining_class(b); });
    first = last == marks.end() ? last : last + 1;
  }
  std::string sorted;
  for (const UChar32 mark : marks) append_utf8(sorted, static_cast<char32_t>(mark));
  return sorted;
}

// ICU orders marks by insertion sort, which is quadratic in the length of a run. Runs longer than in any language are
// therefore sorted beforehand.
void order_long_runs(UnicodeForm form, std::string& text) {
  constexpr std::size_t kLongRunBytes = 512;
  std::string result;
  std::size_t copied = 0;
  std::size_t run_begin = 0;
  const auto end_run = [&](std::size_t end) {
    if (end - run_begin < kLongRunBytes) return;
    result.append(text, copied, run_begin - copied);
    result += in_canonical_order(std::string_view(text).substr(run_begin, end - run_begin), form);
    copied = end;
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = first_char(std::string_view(text).substr(at));
    const std::size_t end = at + c.length;
    if (!may_be_reordered(c.code_point)) {
      end_run(at);
      run_begin = end;
    }
    at = end;
  }
  end_run(text.size());
  if (copied == 0) return;
  result.append(text, copied);
  text = std::move(result);
}

void apply_step(UnicodeForm form, std::string& text) {
  order_long_runs(form, text);
  const icu::FilteredNormalizer2 normalizer(normalizer_of(form), known_characters());
  const icu::StringPiece piece(text.data(), static_cast<std::int32_t>(text.size()));
  UErrorCode status = U_ZERO_ERROR;
  if (normalizer.isNormalizedUTF8(piece, status)) return;
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  normalizer.normalizeUTF8(0, piece, sink, nullptr, status);
  if (U_FAILURE(status)) throw_error<Failure>("ICU cannot normalize a text: {}", u_errorName(status));
  text = std::move(result);
}

void apply_step(const Lowercase&, std::string& text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only character with a lower case of two characters
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      result += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
      ++at;
      continue;
    }
    const Utf8Char c = first_char(std::string_view(text).substr(at));
    at += c.length;
    if (c.code_point == kCapitalIWithDot) {
      result += "i\u0307";
    } else {
      append_utf8(result, lower_case(c.code_point));
    }
  }
  text = std::move(result);
}

void apply_step(const Replace& replace, std::string& text) {
  text = replace_all(replace.pattern, text, replace.content);
}

void apply_step(const StripAccents&, std::string& text) {
  std::string result;
  result.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char c = first_char(rest);
    if (!accents().contains(static_cast<UChar32>(c.code_point))) result += rest.substr(0, c.length);
    rest.remove_prefix(c.length);
  }
  text = std::move(result);
}

void apply_step(const Strip& strip, std::string& text) {
  const std::size_t begin = strip.left ? skip_space(text, 0) : 0;
  const std::size_t end = strip.right ? skip_space_back(text, text.size(), begin) : text.size();
  text = text.substr(begin, end - begin);
}

void apply_step(const ToByteLevel&, std::string& text) {
  text = to_byte_level(text);
}

void apply_step(const Prepend& prepend, std::string& text) {
  if (!text.empty()) text.insert(0, prepend.content);
}

}  // namespace

Normalizer::Normalizer(const JsonField& field) {
  add(field);
}

void Normalizer::add(const JsonField& field) {
  const std::string type = field.at("type").text();
  if (steps_.size() == kMaxNormalizers)
    field.fail(fmt::format("more than {} normalizers (max_normalizers)", kMaxNormalizers));
  if (type == "Sequence") {
    for (const JsonField& element : field.at("normalizers").elements()) add(element);
  } else if (type == "NFC") {
    steps_.emplace_back(UnicodeForm::nfc);
  } else if (type == "NFD") {
    steps_.emplace_back(UnicodeForm::nfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(UnicodeForm::nfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(UnicodeForm::nfkd);
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "Replace") {
    steps_.emplace_back(Replace{Pattern::from_json(field.at("pattern")), field.at("content").text()});
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{field.at("prepend").text()});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{field.at("strip_left").boolean(), field.at("strip_right").boolean()});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripAccents{});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ToByteLevel{});
  } else {
    field.at("type").fail(
        fmt::format("the normalizer \"{}\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Replace, "
                    "Prepend, Strip, StripAccents, ByteLevel and Sequence are)",
                    type));
  }
}

std::string Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    std::visit([&](const auto& chosen) { apply_step(chosen, result); }, step);
    check_text_size(result.size());
    // No normalizer of a real model comes near this limit; a Sequence that doubles the text at each step would.
    if (result.size() > kMostGrowth * text.size() + 4096)
      throw_error<InputError>(
          "the tokenizer's normalizer makes {} bytes of {}, more than {} times as many (max_growth)", result.size(),
          text.size(), kMostGrowth);
  }
  return result;
}

void Normalizer::apply(Pieces& pieces) const {
  if (steps_.empty()) return;
  pieces = rewrite_pieces(pieces, [&](std::string& text, std::string_view piece) { text += apply(piece); });
}

}  // namespace heddle

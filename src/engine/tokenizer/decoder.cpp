#include "engine/tokenizer/decoder.h"

#include "base/error.h"
#include "engine/tokenizer/byte_level.h"

namespace heddle {

Decoder::Decoder(const JsonField& field) : separator_("") {
  add(field);
}

void Decoder::add(const JsonField& field) {
  const std::string type = field.at("type").text();
  if (type == "Sequence") {
    for (const JsonField& element : field.at("decoders").elements()) add(element);
  } else if (type == "ByteLevel") {
    if (is_byte_level_) field.fail("a second ByteLevel decoder is not supported");
    is_byte_level_ = true;
  } else if (type != "Fuse") {  // joins all tokens, as nothing here keeps them apart
    field.at("type").fail(fmt::format("the decoder \"{}\" is not supported (ByteLevel, Fuse and Sequence are)", type));
  }
}

std::string Decoder::bytes_of(std::string_view token) const {
  if (is_byte_level_)
    if (auto bytes = from_byte_level(token)) return *std::move(bytes);
  return std::string(token);
}

}  // namespace heddle

#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle::server {
namespace {

TEST(ApiKeys, NameTheirOwner) {
  const ApiKeys keys = ApiKeys::parse("# who\nfirst-key-1\r\n\nsecond-key\n", "f");
  EXPECT_EQ(keys.owner_of("Bearer first-key-1"), 1U);
  EXPECT_EQ(keys.owner_of("bearer second-key"), 2U);
  for (const char* wrong :
       {"", "Bearer ", "Bearer first-key-", "Bearer first-key-12", "first-key-1", "Basic first-key-1"})
    EXPECT_EQ(keys.owner_of(wrong), std::nullopt) << wrong;
}

TEST(ApiKeys, AFileWithAWrongLineIsRefusedWithoutTheKey) {
  for (const char* text : {"", "# none\n", "short\n", "has a space in it\n", "b\x01inary-key\n"}) try {
      ApiKeys::parse(text, "f");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("f:"));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("space in it")));
    }
}

}  // namespace
}  // namespace heddle::server

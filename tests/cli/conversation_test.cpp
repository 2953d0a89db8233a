#include "cli/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Conversation, ASavedMessageHasARoleAndContentOrCalls) {
  const auto load = [](std::string_view text) {
    return Conversation(parse_template_input(text, "saved.json"), "saved.json").num_messages();
  };
  EXPECT_EQ(load(R"([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": []}])"), 2u);
  EXPECT_EQ(load(R"([{"role": "assistant", "content": null}])"), 1u);
  EXPECT_THAT([&] { load(R"([{"role": "user", "content": "x"}, {"role": "user"}])"); },
              ThrowsMessage<InputError>("saved.json: messages[1]: has no \"content\""));
  EXPECT_THAT([&] { load(R"([{"content": "x"}])"); },
              ThrowsMessage<InputError>(HasSubstr("messages[0]: expected an object with a \"role\"")));
}

}  // namespace
}  // namespace heddle

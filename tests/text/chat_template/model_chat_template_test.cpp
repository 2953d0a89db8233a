#include "text/chat_template/model_chat_template.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

class ModelChatTemplateTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  std::string render(const std::string& conversation) const {
    return ModelChatTemplate::load(folder_.path()).render(parse_template_input(conversation, "c.json"));
  }
  std::string error(const std::string& conversation = "[]") const {
    try {
      return "no error: " + render(conversation);
    } catch (const InputError& caught) {
      return caught.what();
    }
  }

  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(ModelChatTemplateTest, GivesTheVariablesOfTransformers) {
  write("tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,
            "chat_template":"{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ messages }}"})");
  EXPECT_EQ(render(R"([{"role":"user","content":"x"}])"), "<s></s>FalseNoneNoneTrue[{'role': 'user', 'content': 'x'}]");
}

TEST_F(ModelChatTemplateTest, TakesSpecialTokensFromTheirMapUnlessTheConfigListsThem) {
  write("special_tokens_map.json",
        R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"additional_special_tokens":[]})");
  write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}");
  EXPECT_EQ(render("[]"), "<s>|</s>|");
  write("tokenizer_config.json", R"({"bos_token":"<bos>","unk_token":"<unk>"})");
  EXPECT_EQ(render("[]"), "<s>|</s>|<unk>");
  write("tokenizer_config.json", R"({"bos_token":"<bos>","added_tokens_decoder":{}})");
  EXPECT_EQ(render("[]"), "<bos>||");
}

TEST_F(ModelChatTemplateTest, KeepsTheOrderOfMembers) {
  write("chat_template.jinja", "{{ tools | tojson }}");
  EXPECT_EQ(render(R"({"messages":[],"tools":[{"z":1,"a":{"y":2,"b":3}}]})"), R"([{"z": 1, "a": {"y": 2, "b": 3}}])");
}

TEST_F(ModelChatTemplateTest, TakesTheTemplateForToolsWhenThereAreTools) {
  write("tokenizer_config.json",
        R"({"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]})");
  EXPECT_EQ(render("[]"), "d");
  EXPECT_EQ(render(R"({"messages":[],"tools":[]})"), "t");
}

TEST_F(ModelChatTemplateTest, PrefersTheFilesToTheConfig) {
  write("tokenizer_config.json", R"({"chat_template":"config"})");
  EXPECT_EQ(render("[]"), "config");
  write("chat_template.jinja", "file");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(render("[]"), "file");
  EXPECT_EQ(render(R"({"messages":[],"tools":[]})"), "tools");
}

TEST_F(ModelChatTemplateTest, GivesAnotherTemplateTheModelsOwnTokens) {
  write("tokenizer_config.json",
        R"({"bos_token":"<s>","pad_token":"<pad>","image_token":"<img>","add_bos_token":true,"sep_token":null,
            "extra_special_tokens":{"audio":{"content":"<audio>"}},"chat_template":"{% malformed"})");
  write("mine.jinja", "{{ bos_token }}{{ pad_token }}{{ image_token }}{{ audio }}{{ sep_token is defined }}");
  const ModelChatTemplate mine = ModelChatTemplate::load(folder(), folder() / "mine.jinja");
  EXPECT_EQ(mine.render(parse_template_input("[]", "c.json")), "<s><pad><img><audio>False");
  EXPECT_THROW(ModelChatTemplate::load(folder(), folder() / "none.jinja"), InputError);
}

TEST_F(ModelChatTemplateTest, NamesWhatIsMissing) {
  EXPECT_THAT(error(), HasSubstr("has no chat template"));
  write("tokenizer_config.json", R"({"chat_template":[{"name":"rag","template":"d"}]})");
  EXPECT_THAT(error(), HasSubstr("there are: rag"));
}

TEST_F(ModelChatTemplateTest, RefusesOtherConfigs) {
  for (const char* config :
       {"[]", "{", R"({"chat_template":5})", R"({"chat_template":[{"name":"a"}]})",
        R"({"bos_token":5,"chat_template":""})",
        R"({"chat_template":[{"name":"a","template":""},{"name":"a","template":""}]})", R"({"chat_template":"{{"})"}) {
    write("tokenizer_config.json", config);
    EXPECT_THAT(error(), HasSubstr("tokenizer_config.json")) << config;
  }
}

TEST(TemplateInput, RefusesWhatIsNoConversation) {
  for (const char* text :
       {"", "5", "{}", "[5]", R"({"messages":5})", R"({"messages":[],"tools":{}})", R"({"messages":[],"tools":[1]})",
        R"({"messages":[],"documents":[1]})", R"({"messages":[],"mesages":[]})", R"([{"a":1,"a":2}])"})
    EXPECT_THROW(parse_template_input(text, "c.json"), InputError) << text;
}

}  // namespace
}  // namespace heddle

#include "weights/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"
#include "weights/damage.h"
#include "weights/safetensors_builder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Sets variables of the environment and restores them.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::optional<std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      const char* before = ::getenv(name.c_str());
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      set(name, value);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

constexpr const char* kRevision = "0e9e39f249a16976918f6564b8830bc894c89659";

class HubCache : public ::testing::Test {
 protected:
  void write(const fs::path& file, std::string_view text) const {
    fs::create_directories((folder_.path() / file).parent_path());
    write_file(folder_.path() / file, text);
  }
  // The cache of one model with this revision of main.
  fs::path add_model(const fs::path& cache, const std::string& name) const {
    const fs::path repository = cache / name;
    write(repository / "refs/main", kRevision);
    write(repository / "snapshots" / kRevision / "config.json", "{}");
    return folder_.path() / repository / "snapshots" / kRevision;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::string error(const std::string& model) {
    return message_of<InputError>([&] { model_folder(model); });
  }

  TemporaryFolder folder_;
  Environment none_{{{"HF_HUB_CACHE", std::nullopt},
                     {"HUGGINGFACE_HUB_CACHE", std::nullopt},
                     {"HF_HOME", std::nullopt},
                     {"XDG_CACHE_HOME", std::nullopt},
                     {"HOME", std::nullopt}}};
};

TEST_F(HubCache, FindsTheSnapshotOfMainWhereverTheVariablesSay) {
  const struct {
    const char* variable;
    const char* folder;
  } cases[] = {{"HOME", ".cache/huggingface/hub"},
               {"XDG_CACHE_HOME", "huggingface/hub"},
               {"HF_HOME", "hub"},
               {"HF_HUB_CACHE", ""}};
  int number = 0;
  for (const auto& c : cases) {  // each goes before those above it
    const std::string root = "cache" + std::to_string(number++);
    const fs::path snapshot = add_model(fs::path(root) / c.folder, "models--org--My-Model.v1");
    ::setenv(c.variable, path(root).c_str(), 1);
    EXPECT_EQ(model_folder("org/My-Model.v1"), snapshot) << c.variable;
    EXPECT_EQ(hub_cache(), std::string_view(c.folder).empty() ? path(root) : path(root) + "/" + c.folder) << c.variable;
  }
}

TEST_F(HubCache, AFolderOfThatNameGoesFirstAndARepositorysFolderIsItsSnapshot) {
  const fs::path snapshot = add_model("hub", "models--org--m");
  ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
  EXPECT_EQ(model_folder(path("hub/models--org--m")), snapshot);
  EXPECT_EQ(model_folder(path("hub/models--org--m") + "/"), snapshot);
  EXPECT_EQ(model_folder(snapshot.string()), snapshot);
  write("here/org/m/config.json", "{}");
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path() / "here");
  EXPECT_EQ(model_folder("org/m"), "org/m");
  fs::current_path(before);
}

TEST_F(HubCache, SaysHowToDownloadWhatIsNotThere) {
  ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
  EXPECT_EQ(
      error("meta-llama/Llama-3.2-1B"),
      "meta-llama/Llama-3.2-1B: no such folder, and no such model in the cache of Hugging Face (" + path("hub") +
          "). Download it: hf download meta-llama/Llama-3.2-1B (from the Python package huggingface_hub), then give "
          "the same name");
  for (const char* no_repository : {"no-such", "a/b/c", "../up", "a//b", "/a/b", "a/b--c", "a/.b", "a/", "a/b\n", ""})
    EXPECT_THAT(error(no_repository),
                AllOf(HasSubstr("no such folder. Give the folder"), ::testing::Not(HasSubstr("download"))))
        << no_repository;
  EXPECT_THAT(error("https://huggingface.co/org/name"),
              HasSubstr("is a page, and Heddle reads folders. Give the model's name, org/name"));
}

TEST_F(HubCache, NamesAModelOrFolderOfNearlyTheSameName) {
  ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
  add_model("hub", "models--acme--tiny");
  EXPECT_THAT(error("acme/tinny"), HasSubstr(". Did you mean acme/tiny? Or download it: hf download acme/tinny (from"));
  write("here/demo-llama/config.json", "{}");
  write("here/notes", "no folder");
  EXPECT_THAT(error(path("here/demo-lama")),
              HasSubstr(": no such folder. Did you mean " + path("here/demo-llama") + "? Give"));
  EXPECT_THAT(error(path("here/note")), ::testing::Not(HasSubstr("Did you mean")));
  EXPECT_THAT(error("gpt2"), HasSubstr("or ORG/NAME of a model in the cache of Hugging Face"));
}

TEST_F(HubCache, SaysWhatIsMissingOfADownload) {
  ::setenv("HF_HUB_CACHE", path("hub").c_str(), 1);
  add_model("hub", "models--org--m");
  fs::remove_all(folder_.path() / "hub/models--org--m/snapshots" / kRevision);
  EXPECT_THAT(error("org/m"),
              AllOf(HasSubstr("refs/main: names the snapshot 0e9e39f2"), HasSubstr("hf download org/m")));
  write("hub/models--org--m/refs/main", "../../../etc");
  EXPECT_THAT(error("org/m"), HasSubstr("refs/main: expected the name of a snapshot, found ../../../etc"));
  write("hub/models--org--m/snapshots/abc/config.json", "{}");
  fs::remove(folder_.path() / "hub/models--org--m/refs/main");
  EXPECT_THAT(error("org/m"), AllOf(HasSubstr("the revision main was not downloaded"), HasSubstr("only abc")));
  fs::remove_all(folder_.path() / "hub/models--org--m/snapshots");
  EXPECT_THAT(error("org/m"), HasSubstr("has no snapshot; download it again: hf download org/m"));
}

// What a folder or file is that holds no model in Hugging Face's layout.
class OtherFormats : public HubCache {
 protected:
  std::string checkpoint_error(const std::string& name = "m") const {
    std::string message = message_of<InputError>([&] { Checkpoint{model_folder(path(name))}; });
    const std::string prefix = path("");
    for (std::size_t at; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
    return message;
  }
};

TEST_F(OtherFormats, FilesAreNamed) {
  write("x.gguf", "GGUF....");
  write("unnamed", "GGUF....");
  write("x.bin", "PK");
  write("folder/model.safetensors", "");
  write("notes", "hello");
  EXPECT_THAT(checkpoint_error("x.gguf"),
              StartsWith("x.gguf: is a GGUF file (llama.cpp), which Heddle does not read yet"));
  EXPECT_THAT(checkpoint_error("unnamed"), StartsWith("unnamed: is a GGUF file"));
  EXPECT_THAT(checkpoint_error("x.bin"), StartsWith("x.bin: these weights are pickled"));
  EXPECT_EQ(checkpoint_error("folder/model.safetensors"),
            "folder/model.safetensors: is one file of a model. Give its folder: folder");
  EXPECT_THAT(checkpoint_error("notes"), StartsWith("notes: is not a folder"));
}

TEST_F(OtherFormats, FoldersAreNamed) {
  const struct {
    std::vector<std::pair<const char*, const char*>> files;
    const char* message;
  } cases[] = {
      {{{"x.Q4_K_M.gguf", "GGUF"}, {"README.md", ""}}, "m/x.Q4_K_M.gguf: is a GGUF file"},
      {{{"config.json", "{}"}, {"x.gguf", "GGUF"}}, "m/x.gguf: is a GGUF file"},
      {{{"adapter_config.json", R"({"peft_type":"LORA","base_model_name_or_path":"org/base"})"},
        {"adapter_model.safetensors", ""}},
       "m: is a LoRA adapter of org/base without its base model. Heddle does not apply adapters: merge it with the "
       "Python "
       "package peft"},
      {{{"adapter_config.json", R"({"peft_type":"IA3"})"}}, "m: is a IA3 adapter without"},
      {{{"adapter_config.json", "{"}, {"config.json", "{}"}}, "m: is a LoRA adapter without"},
      {{{"config.json", "{}"}, {"pytorch_model.bin", ""}}, "m/pytorch_model.bin: these weights are pickled"},
      {{{"params.json", "{}"}, {"consolidated.00.pth", ""}},
       "m/consolidated.00.pth: these weights are in their authors'"},
      {{{"config.json", "{}"}, {"model-00001-of-00002.safetensors", ""}},
       "m: holds model-00001-of-00002.safetensors, but no model.safetensors.index.json. Is the download complete?"},
      {{{"config.json", "{}"}, {"model.fp16.safetensors", ""}}, "m: holds model.fp16.safetensors; Heddle looks for"},
      {{{"config.json", R"({"quantization_config":{"quant_method":"gptq","bits":4}})"}},
       "m: is a model quantised by gptq, which Heddle does not read yet"},
      {{{"config.json", R"({"quantization_config":7})"}}, "m: holds no weights; looked for model.safetensors"},
      {{{"config.json", "{}"}, {"quantize_config.json", "{}"}, {"gptq_model-4bit-128g.safetensors", ""}},
       "m: is a model quantised by GPTQ or AWQ, which"},
      {{{"model_index.json", "{}"}}, "m: is a diffusion pipeline"},
      {{{"config.json", "{}"}, {"tf_model.h5", ""}}, "m/tf_model.h5: these weights are TensorFlow's"},
      {{{"config.json", "{}"}}, "m: holds no weights; looked for model.safetensors"},
      {{{"README.md", ""}}, "m: holds no config.json"},
  };
  for (const auto& c : cases) {
    fs::remove_all(folder_.path() / "m");
    for (const auto& [name, text] : c.files) write(fs::path("m") / name, text);
    EXPECT_THAT(checkpoint_error(), StartsWith(c.message));
  }
}

TEST_F(OtherFormats, AFolderAboveAModelNamesIt) {
  write("above/m/config.json", "{}");
  EXPECT_THAT(checkpoint_error("above"), StartsWith("above: holds no config.json. Did you mean "));
}

TEST_F(OtherFormats, ASnapshotWithoutWeightsIsAnUnfinishedDownload) {
  add_model("hub", "models--acme--part");
  EXPECT_THAT(
      checkpoint_error("hub/models--acme--part"),
      AllOf(HasSubstr("holds no weights. Is the download complete?"), ::testing::EndsWith("hf download acme/part")));
}

TEST_F(OtherFormats, ALinkWhoseFileIsGoneIsAnUnfinishedDownload) {
  write("m/config.json", "{}");
  fs::create_symlink("../blobs/gone", folder_.path() / "m/model.safetensors");
  EXPECT_THAT(checkpoint_error(),
              StartsWith("m/model.safetensors: is a link to a file that is not there. Is the download complete?"));
}

TEST_F(OtherFormats, APointerOfGitLfsIsNamedWhicheverFileItStandsFor) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d"
      "17e2393\nsize 12345\n";
  const std::string weights = safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x");
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json"}) {
    fs::remove_all(folder_.path() / "m");
    write("m/config.json", "{}");
    if (std::string_view(name) != "model.safetensors.index.json") write("m/model.safetensors", weights);
    write(fs::path("m") / name, pointer);
    EXPECT_THAT(checkpoint_error(),
                AllOf(StartsWith("m/" + std::string(name) + ": is a Git LFS pointer"), HasSubstr("git lfs pull")));
  }
  write("long.txt", pointer + std::string(2000, 'x'));
  EXPECT_EQ(read_file(path("long.txt"), 1 << 20).size(), pointer.size() + 2000) << "no pointer is that long";
}

TEST_F(OtherFormats, AnAdapterBesideWeightsIsWarnedOf) {
  write("m/config.json", "{}");
  write("m/model.safetensors", safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  EXPECT_THAT(Checkpoint(path("m")).warnings(), ::testing::IsEmpty());
  write("m/adapter_config.json", R"({"base_model_name_or_path":"a\u001b[2J"})");
  EXPECT_THAT(Checkpoint(path("m")).warnings(),
              ::testing::ElementsAre(AllOf(HasSubstr("a LoRA adapter of a"), HasSubstr("is not applied"),
                                           ::testing::Not(HasSubstr("\x1b")))));
}

TEST_F(OtherFormats, ADamagedTensorIsFoundInEveryDtype) {
  const struct {
    const char* dtype;
    std::string sound, damaged;  // an element
  } cases[] = {{"F32", std::string("\xff\xff\x7f\x7f", 4), std::string("\x01\x00\x80\x7f", 4)},
               {"BF16", std::string("\x7f\x7f", 2), std::string("\x80\xff", 2)},
               {"F16", std::string("\xff\x7b", 2), std::string("\x00\x7c", 2)}};
  for (const auto& c : cases) {
    const std::size_t size = c.sound.size();
    const std::string header = fmt::format(
        R"({{"a":{{"dtype":"{0}","shape":[3],"data_offsets":[0,{1}]}},"b":{{"dtype":"{0}","shape":[2,2],"data_offsets":[{1},{2}]}}}})",
        c.dtype, 3 * size, 7 * size);
    const std::string sound = c.sound + c.sound + c.sound + c.sound;
    write("m/config.json", "{}");
    write("m/model.safetensors", safetensors_file(header, sound + c.sound + c.sound + c.sound));
    EXPECT_EQ(find_damage(Checkpoint(path("m"))), std::nullopt) << c.dtype;
    write("m/model.safetensors", safetensors_file(header, sound + c.damaged + c.sound + c.damaged));
    EXPECT_EQ(
        find_damage(Checkpoint(path("m"))),
        path("m/model.safetensors") +
            ": tensor \"b\" is damaged: 2 of its 4 numbers are NaN or infinite, the first at index 1. Download the "
            "file again")
        << c.dtype;
  }
}

}  // namespace
}  // namespace heddle

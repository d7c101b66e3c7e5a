// What is found at a path, and what is said where it is nothing.
#include "interop/model_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "checkpoint/partial_folder.h"
#include "expect_error.h"
#include "interop/conversion_folder.h"
#include "interop/conversions.h"

namespace argosy::interop {
namespace {

namespace fs = std::filesystem;
using checkpoint::Replace;

TEST(OpenModel, FindsEveryForm) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("llama"));
    write_hugging_face(folder / "hf", tiny_spec("qwen3"));
    convert_to(folder / "hf", folder / "full", {.to = Form::Full});
    const fs::path step = folder / "run" / "checkpoint" / "step-00000070";
    for (const fs::path& path :
         {folder / "run", folder / "run/", folder / "run" / "checkpoint", step, step / ""}) {
        const ModelSource source = open_model(path);
        EXPECT_EQ(source.form, Form::Sharded) << path;
        EXPECT_EQ(source.path, step);
        EXPECT_EQ(source.spec, tiny_spec("llama"));
        EXPECT_EQ(source.description->step, 70);
        EXPECT_EQ(source.checkpoint, source.tensors.get());
    }
    EXPECT_EQ(open_model(folder / "full").form, Form::Full);
    EXPECT_EQ(open_model(folder / "full").spec, tiny_spec("qwen3"));
    const ModelSource hf = open_model(folder / "hf");
    EXPECT_EQ(hf.form, Form::HuggingFace);
    EXPECT_EQ(hf.spec, tiny_spec("qwen3"));
    EXPECT_FALSE(hf.description.has_value());
    EXPECT_EQ(hf.checkpoint, nullptr);
    EXPECT_EQ(hf.tensors->at("model/norm.weight").shape, std::vector<int64_t>{26});
}

TEST(OpenModel, TakesTheNewestWholeStep) {
    const ScratchFolder folder;
    write_step(folder / "run", tiny_spec("llama"));
    const fs::path steps = folder / "run" / "checkpoint";
    write_step(folder / "run", tiny_spec("llama"), 9);
    fs::create_directory(steps / "step-00000090.partial");
    EXPECT_EQ(open_model(steps).path, steps / "step-00000070");
    fs::rename(steps / "step-00000070", steps / "step-00000070.partial");
    EXPECT_EQ(open_model(folder / "run").path, steps / "step-00000009");
    EXPECT_ERROR(open_model(steps / "step-00000070.partial"), UserError, "unfinished");
}

TEST(OpenModel, SaysWhatItLookedForAndWhatIsThere) {
    const ScratchFolder folder;
    EXPECT_ERROR(open_model(folder / "none"), UserError, "none\" does not exist", "not looked up");
    fs::create_directory(folder / "empty");
    EXPECT_ERROR(open_model(folder / "empty"), UserError, "checkpoint.h5", "step-NNNNNNNN", "config.json",
                 "it holds nothing");
    write_file(folder / "empty" / "notes", "");
    EXPECT_ERROR(open_model(folder / "empty"), UserError, "it holds \"notes\"");
    EXPECT_ERROR(open_model(folder / "empty" / "notes"), UserError, "notes");
    write_hugging_face(folder / "hf", tiny_spec("llama"));
    for (const char* name : {"model.safetensors", "config.json"})
        EXPECT_ERROR(open_model(folder / "hf" / name), UserError, "give its folder");
    fs::rename(folder / "hf" / "config.json", folder / "config.json");
    EXPECT_ERROR(open_model(folder / "hf"), UserError, "has model.safetensors, but not config.json");
    fs::rename(folder / "hf" / "model.safetensors", folder / "hf" / "config.json");
    EXPECT_ERROR(open_model(folder / "hf"), UserError, "has config.json, but not model.safetensors");
    fs::rename(folder / "hf" / "config.json", folder / "hf" / "model.safetensors");
    write_file(folder / "hf" / "config.json", "{}");
    EXPECT_ERROR(open_model(folder / "hf"), UserError, "config.json", "model_type");
    write_file(folder / "hf" / "config.json",
               "{\n \"model_type\": \"llama\",\n \"model_type\": \"qwen2\"\n}");
    EXPECT_ERROR(open_model(folder / "hf"), UserError, "config.json: the key \"model_type\" occurs twice",
                 "line 3");
    write_file(folder / "hf" / "config.json", std::string("{}\0{}", 5));
    EXPECT_ERROR(open_model(folder / "hf"), UserError, "config.json: a zero byte at byte 3");
}

TEST(OpenModel, WeightsOfOtherProgramsAreNamed) {
    const ScratchFolder folder;
    for (const char* name : {"pytorch_model.bin", "consolidated.00.pth"}) {
        write_file(folder / name, "");
        EXPECT_ERROR(open_model(folder / name), UserError, name, "give its folder");
    }
    fs::create_directory(folder / "pickled");
    write_file(folder / "pickled" / "pytorch_model.bin", "");
    EXPECT_ERROR(open_model(folder / "pickled"), UserError, "pytorch_model.bin, but not config.json");
    fs::create_directory(folder / "meta");
    write_file(folder / "meta" / "params.json", "{}");
    EXPECT_ERROR(open_model(folder / "meta"), UserError, "params.json, but no consolidated.00.pth");
    write_file(folder / "meta" / "consolidated.01.pth", "");
    EXPECT_ERROR(open_model(folder / "meta"), UserError, "consolidated.01.pth, but no consolidated.00.pth");
    for (const char* name : {"model-q4.gguf", "lit_model.pth"}) {
        fs::create_directory(folder / name);
        write_file(folder / name / name, "");
        EXPECT_ERROR(open_model(folder / name), UserError, name, name[0] == 'm' ? "GGUF" : "PyTorch",
                     "model.safetensors");
    }
    write_hugging_face(folder / "both", tiny_spec("llama"));
    write_file(folder / "both" / "pytorch_model.bin", "");
    EXPECT_EQ(open_model(folder / "both").form, Form::HuggingFace);
    // Mistral's folders on the hub
    write_file(folder / "both" / "params.json", "{}");
    write_file(folder / "both" / "consolidated.safetensors", "");
    fs::create_directory(folder / "both" / "step-5");
    EXPECT_EQ(open_model(folder / "both").form, Form::HuggingFace);
}

TEST(OpenModel, NamesWhatFoldersOfOtherProgramsLack) {
    const ScratchFolder folder;
    fs::create_directories(folder / "meta");
    write_file(folder / "meta" / "consolidated.00.pth", "");
    EXPECT_ERROR(open_model(folder / "meta"), UserError, "consolidated.00.pth, but no params.json");
    fs::create_directories(folder / "own" / "step-00000100");
    EXPECT_ERROR(open_model(folder / "own"), UserError, "step-00000100 is not a checkpoint", "no checkpoint.h5");
    fs::create_directories(folder / "theirs" / "step-100");
    write_file(folder / "theirs" / "step-100" / "rank_0.pt", "");
    EXPECT_ERROR(open_model(folder / "theirs"), UserError, "none has .metadata", "torch_checkpointing");
}

TEST(OpenModel, FollowsLinksAndNamesBrokenOnes) {
    const ScratchFolder folder;
    write_hugging_face(folder / "blobs", tiny_spec("llama"));
    fs::create_directory(folder / "snapshot");
    fs::create_directory_symlink("snapshot", folder / "link");
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
        fs::create_symlink(fs::path("..") / "blobs" / name, folder / "snapshot" / name);
    }
    convert_to(folder / "link", folder / "out", {.to = Form::HuggingFace});
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
        EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "out" / name)));
        fs::rename(folder / "blobs" / name, folder / "blobs" / "gone");
        EXPECT_ERROR(convert_to(folder / "link", folder / "out2", {.to = Form::HuggingFace}), UserError, name,
                     "is a link to", "does not exist");
        fs::rename(folder / "blobs" / "gone", folder / "blobs" / name);
    }
    fs::create_symlink("nowhere", folder / "broken");
    EXPECT_ERROR(open_model(folder / "broken"), UserError, "is a link to nowhere, which does not exist");
}

TEST(OpenModel, WaitsForNoPipe) {
    const ScratchFolder folder;
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_ERROR(open_model(folder / "pipe"), UserError, "pipe", "not a regular file");
}

TEST(OpenModel, CarriesTheTokenizersFilesAndNothingElse) {
    const ScratchFolder folder;
    write_hugging_face(folder / "hf", tiny_spec("llama"));
    write_file(folder / "hf" / "merges.txt", "m");
    write_file(folder / "hf" / "README.md", "r");
    const auto assets = read_assets(open_model(folder / "hf"));
    ASSERT_EQ(assets.size(), 2u);
    EXPECT_EQ(assets[0].name, "tokenizer.json");
    EXPECT_EQ(assets[1].name, "merges.txt");
    EXPECT_EQ(assets[1].bytes, "m");
}

TEST(CheckOutput, ProtectsWhatIsThere) {
    const ScratchFolder folder;
    write_hugging_face(folder / "downloaded", tiny_spec("llama"));
    convert_to(folder / "downloaded", folder / "full", {.to = Form::Full});
    convert_to(folder / "downloaded", folder / "hf", {.to = Form::HuggingFace});
    const fs::path source = folder / "elsewhere";
    check_output(folder / "new", Form::HuggingFace, Replace::No, source);
    EXPECT_ERROR(check_output(folder / "no" / "new", Form::HuggingFace, Replace::No, source), UserError,
                 "the folder", "does not exist");
    for (const char* name : {"hf", "full"}) {
        EXPECT_ERROR(check_output(folder / name, Form::HuggingFace, Replace::No, source), UserError, "exists",
                     "--force");
        check_output(folder / name, Form::HuggingFace, Replace::Yes, source);
    }
    EXPECT_ERROR(check_output(folder / "downloaded", Form::HuggingFace, Replace::Yes, source), UserError,
                 "no checkpoint or model that a conversion wrote", "even with --force");
    write_file(folder / "hf" / "README.md", "");
    check_output(folder / "hf", Form::HuggingFace, Replace::Yes, source);
    EXPECT_ERROR(check_output(folder / "hf", Form::Full, Replace::Yes, source), UserError,
                 "cannot be replaced by a file", "'README.md'");
    fs::create_directory(folder / "other");
    check_output(folder / "other", Form::HuggingFace, Replace::Yes, source);
    write_file(folder / "other" / "thesis.tex", "");
    EXPECT_ERROR(check_output(folder / "other", Form::HuggingFace, Replace::Yes, source), UserError,
                 "no checkpoint or model", "even with --force");
    write_file(folder / "other" / "conversion.json", R"({"format": "another", "files": ["thesis.tex"]})");
    EXPECT_ERROR(check_output(folder / "other", Form::HuggingFace, Replace::Yes, source), UserError,
                 "even with --force");
    write_file(folder / "other" / "conversion.json", R"({"files": [], "files": ["thesis.tex"]})");
    EXPECT_ERROR(check_output(folder / "other", Form::HuggingFace, Replace::Yes, source), UserError,
                 "conversion.json", "\"files\" occurs twice");
    EXPECT_ERROR(check_output(folder / "other" / "thesis.tex", Form::HuggingFace, Replace::Yes, source),
                 UserError, "even with --force");
    EXPECT_ERROR(check_output(folder / "hf" / "new", Form::HuggingFace, Replace::No, folder / "hf"),
                 UserError, "lies inside the source", "write beside it");
    EXPECT_ERROR(check_output("", Form::HuggingFace, Replace::No, source), UserError, "is empty");
    EXPECT_ERROR(check_output(folder / std::string(250, 'a'), Form::HuggingFace, Replace::No, source),
                 UserError, "too long");
    EXPECT_ERROR(check_output(folder / "full" / "new", Form::HuggingFace, Replace::No, source), UserError,
                 "full is not a folder");
    EXPECT_ERROR(check_output(folder / "hf", Form::HuggingFace, Replace::Yes, folder / "hf"), UserError,
                 "the source", "lies there");
    EXPECT_ERROR(check_output(folder / "", Form::HuggingFace, Replace::Yes, folder / "hf"), UserError,
                 "the source", "lies there");
}

TEST(CheckOutput, AStepIsNotNamedAsAnother) {
    for (const char* name : {"step-00000070", "a/step-00000070", "70", "step-", "step-seven", "model"}) {
        check_step_name(name, 70);
    }
    EXPECT_ERROR(check_step_name("run/step-00000007", 70), UserError, "step-00000007", "step-00000070");
    EXPECT_ERROR(check_step_name("step-70", 70), UserError, "step-00000070");
}

}  // namespace
}  // namespace argosy::interop

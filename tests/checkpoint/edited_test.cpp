// Files that somebody edited, with checksums that are right for the edit: each promise of FORMAT.md is broken
// in turn, and the file is refused.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <map>

#include "base/error.h"
#include "checkpoint/input_file.h"
#include "checkpoint/sample.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// The table with the two entries of a list in the other order.
std::string swapped(const std::string& text, const std::string& list) {
    const size_t first = text.find(list + "\n") + list.size() + 1, second = text.find(",\n", first) + 2;
    const size_t end = text.find("}]", second) + 1;
    const std::string a = text.substr(first, second - 2 - first), b = text.substr(second, end - second);
    return text.substr(0, first) + b + ",\n" + a + text.substr(end);
}

/// Reads all that a reader may ask for. The first error, or an empty text.
std::string refusal(const fs::path& path) {
    try {
        const Checkpoint checkpoint(path);
        for (const TensorInfo& tensor : checkpoint.tensors()) checkpoint.slabs(tensor);
        const std::vector<std::string> faults = checkpoint.faults();
        return faults.empty() ? "" : faults.front();
    } catch (const UserError& error) {
        return error.what();
    }
}

class Edited : public ::testing::Test {
  protected:
    Edited() {
        for (const char* name : {"model/a", "model/b"})
            sample_.add(random_, {.name = name, .type = ElementType::Float32, .shape = {8, 3}});
        const SavePlan plan{
            .grid = {2}, .tensors = {{sample_.tensors[0], {{0, 2, 0}}}, {sample_.tensors[1], {{0, 2, 0}}}}};
        const Hash nonce{1, 2};
        step_ = folder_ / "run" / "step-00000007";
        manifest_ = step_ / "checkpoint.h5";
        shard_ = step_ / shard_name(0, 2);
        write_shards(random_, start_step(folder_ / "run", 7, 2), sample_, nonce, plan);
        commit_step(folder_ / "run", sample_description(), nonce, plan, kSampleAssets);
        full_ = folder_ / "all.h5";
        write_full_file(random_, full_, sample_);
        for (const fs::path& path : {full_, manifest_, shard_}) sound_[path] = read_file(path);
    }
    ~Edited() override {
        EXPECT_EQ(refusal(step_), "");
        EXPECT_EQ(refusal(full_), "");
    }

    /// Expects that the checkpoint is refused after `change`, which edits its files, with a message that
    /// holds all parts. Restores the files.
    void expect_refused(const fs::path& checkpoint, const std::function<void()>& change,
                        const std::vector<std::string>& parts) {
        change();
        expect_message(refusal(checkpoint), parts);
        for (const auto& [path, bytes] : sound_) write_file(path, bytes);
    }

    /// Replaces the table of a file by a changed one at the file's end, and then changes the lines of its
    /// user block. All checks are right for the new bytes. Returns the new check of the user block.
    static std::string edit(const fs::path& path, const std::function<std::string(std::string)>& table,
                            const std::function<std::string(std::string)>& lines) {
        const InputFile file(path);
        std::string bytes = read_file(path);
        UserBlock block = file.block();
        std::vector<ByteRange> checked = checked_ranges(file);
        const std::string text = table(file.table());
        if (text != file.table()) {
            block.table_at = static_cast<int64_t>(bytes.size());
            bytes += text;
        }
        block.table_bytes = static_cast<int64_t>(text.size());
        block.num_bytes = static_cast<int64_t>(bytes.size());
        block.table_hash = hash_of(text);
        checked.push_back({block.table_at, block.table_bytes});
        write_file(path, bytes);
        block.rest =
            hash_of(RawFile::open_to_read(path), gaps(std::move(checked), path.string(), block.num_bytes));
        std::string head = to_text(block);
        head = lines(head.substr(0, head.find("check ")));
        const std::string check = hash_of(head).hex();
        head += "check " + check + "\n";
        head.resize(kUserBlockBytes - 1, ' ');
        write_file(path, head + "\n" + bytes.substr(kUserBlockBytes));
        return check;
    }

    /// As `edit`, for shard 0 of the step, whose new length and check the manifest then names.
    void edit_shard(const std::function<std::string(std::string)>& table,
                    const std::function<std::string(std::string)>& lines) {
        const StoredFile old = Checkpoint(step_).manifest().files[0];
        const std::string check = edit(shard_, table, lines);
        const auto entry = [](int64_t num_bytes, const std::string& hash) {
            return fmt::format(R"("bytes":{},"check":"{}")", num_bytes, hash);
        };
        edit(
            manifest_,
            [&](const std::string& text) {
                return replaced(text, entry(old.num_bytes, old.check.hex()),
                                entry(static_cast<int64_t>(fs::file_size(shard_)), check));
            },
            same);
    }

    static std::string same(std::string text) { return text; }

    static std::function<std::string(std::string)> with(const std::string& from, const std::string& to) {
        return [=](std::string text) { return replaced(std::move(text), from, to); };
    }

    Random random_{3};
    ScratchFolder folder_;
    Sample sample_;
    fs::path step_, manifest_, shard_, full_;  // the manifest and shard 0 of the step; a full file

  private:
    std::map<fs::path, std::string> sound_;

    /// The slabs and assets in a file.
    static std::vector<ByteRange> checked_ranges(const InputFile& file) {
        std::vector<ByteRange> ranges;
        const auto add = [&](const std::vector<StoredTensor>& tensors) {
            for (const StoredTensor& tensor : tensors)
                for (const StoredSlab& slab : tensor.slabs)
                    ranges.push_back({slab.at, slab.slab.num_elements() * size_bytes(tensor.info.type)});
        };
        if (file.block().kind == FileKind::Shard) {
            add(parse_shard_table(file.table(), "F", file.table_file()).tensors);
            return ranges;
        }
        const Manifest manifest = parse_manifest(file.table(), "F", file.table_file());
        add(manifest.tensors);
        for (const StoredAsset& asset : manifest.assets) ranges.push_back({asset.at, asset.num_bytes});
        return ranges;
    }
};

TEST_F(Edited, HarmlessChangesAreAccepted) {
    edit(full_, with("\"step\":7", "\"step\":8, \"later\": [1]"), same);
    edit_shard(with("\"slabs\":", "\"later\":{},\"slabs\":"), same);
}

// "set of a shard alone: names the save, as in its table"
TEST_F(Edited, EveryFileNamesTheSameSave) {
    const std::string set = Checkpoint(step_).manifest().set.hex(), other(32, 'f');
    const std::vector<std::string> foreign = {shard_.filename(), "foreign shard", set, other};
    expect_refused(
        step_, [&] { edit(manifest_, with(set, other), same); }, foreign);
    expect_refused(
        step_, [&] { edit_shard(with(set, other), same); }, foreign);
    expect_refused(
        step_, [&] { edit_shard(same, with("set " + set, "set " + other)); }, foreign);
    expect_refused(step_, [&] { edit_shard(same, with("set " + set + "\n", "")); },
                   {shard_.filename(), "line 'set'"});
    expect_refused(full_, [&] { edit(full_, same, with("rest ", "set " + set + "\nrest ")); },
                   {"all.h5", "its lines are not those of a"});
}

// "argosy checkpoint 2.0 ... kind manifest, shard or full"
TEST_F(Edited, TheKindIsThatOfTheTable) {
    const std::string set = Checkpoint(step_).manifest().set.hex();
    expect_refused(full_, [&] { edit(full_, same, with("kind full", "kind manifest")); },
                   {"all.h5", "'manifest'", "0 shards"});
    expect_refused(step_, [&] { edit(manifest_, same, with("kind manifest", "kind full")); },
                   {"checkpoint.h5", "'full'", "2 shards"});
    expect_refused(step_, [&] { edit(manifest_, same, with("checkpoint 2.0", "checkpoint 1.0")); },
                   {"checkpoint.h5", "format 1.0, but this program reads 2.0"});
    expect_refused(step_, [&] { edit(manifest_, same, with("checkpoint 2.0", "checkpoint 3.0")); },
                   {"checkpoint.h5", "it is of format 3.0, but its cuts do not name axes"});
    const auto naming = [](std::string text) {
        for (int i = 0; i < 2; ++i) text = replaced(std::move(text), "[[0,2,0]]", "[[0,2,0,[0]]]");
        return text;
    };
    expect_refused(step_, [&] { edit(manifest_, naming, same); },
                   {"checkpoint.h5", "it is of format 2.0, but its cuts name axes"});
    expect_refused(step_, [&] { edit_shard(same, with("checkpoint 2.0", "checkpoint 3.0")); },
                   {shard_.filename(), "a shard is of format 2.0, not 3.0"});
    expect_refused(step_, [&] { edit_shard(same, with("kind shard", "kind manifest")); },
                   {shard_.filename(), "a manifest does not have a line 'set'"});
    const auto manifest_in_place_of_shard = [&](std::string lines) {
        return replaced(replaced(std::move(lines), "set " + set + "\n", ""), "kind shard", "kind manifest");
    };
    expect_refused(step_, [&] { edit_shard(same, manifest_in_place_of_shard); },
                   {shard_.filename(), "is no shard", "'manifest'"});
}

// "lines that end in \n, in this order"
TEST_F(Edited, TheUserBlockKeepsItsForm) {
    for (const auto& [from, to, fault] : std::initializer_list<std::array<const char*, 3>>{
             {"kind full\nbytes", "bytes 5\nkind full\nbytes", "its lines are not those of a"},
             {"kind full\n", "kind full\nkind full\n", "its lines are not those of a"},
             {"kind full\n", "kind full now\n", "its lines are not those of a"},
             {"kind full\n", "kind  full\n", "its lines are not those of a"},
             {"kind full\n", "kind full\nl\xc3\xa4ter 1\n", "its lines are not those of a"},
             {"kind full\n", "", "its lines are not those of a"},
             {"kind full", "kind half", "its lines are not those of a"},
             {"checkpoint 2.0", "checkpoint 2", "format 2, but this program reads 2.0"},
             {"checkpoint 2.0", "checkpoint 2.x", "format 2.x, but this program reads 2.0"},
             {"checkpoint 2.0", "checkpoint 2.0 new", "format 2.0 new, but this program reads 2.0"},
             {"checkpoint 2.0", "checkpoint 4.0", "format 4.0, but this program reads 2.0 and 3.0"},
             {"checkpoint 2.0", "checkpoint 3.0", "a full is of format 2.0, not 3.0"},
             {"bytes ", "bytes 9", "were expected"},
             {"bytes ", "bytes 99999999999999999999", "its lines are not those of a"},
             {"bytes ", "bytes -", "does not lie in a file"},
             {"table ", "table 9223372036854775807 9223372036854775807 ", "its lines are not those of a"},
             {"table ", "table 9", "does not lie in a file"},
             {"rest ", "rest z", "its lines are not those of a"},
         }) {
        expect_refused(full_, [&] { edit(full_, same, with(from, to)); }, {"all.h5", fault});
    }
}

// "no two things it lists may share a byte, and a reader refuses what does not hold together"
TEST_F(Edited, TheTableSharesNoByte) {
    const auto table_over_a_slab = [&] {  // the new table keeps its length and place
        UserBlock block = InputFile(full_).block();
        const auto at = [](int64_t byte) { return fmt::format("\"at\":{}", byte); };
        const std::string old = at(Checkpoint(full_).manifest().tensors[0].slabs[0].at);
        ASSERT_EQ(old.size(), at(block.table_at).size());
        const std::string text = replaced(InputFile(full_).table(), old, at(block.table_at));
        block.table_hash = hash_of(text);
        std::string all = to_text(block) + read_file(full_).substr(kUserBlockBytes);
        write_file(full_, all.replace(block.table_at, text.size(), text));
    };
    expect_refused(full_, table_over_a_slab, {"all.h5", "two ranges overlap at byte"});
}

// "A shard ... slabs", "Which writer has which slab"
TEST_F(Edited, AShardHasTheSlabsOfThePlan) {
    const auto expect = [&](const std::function<std::string(std::string)>& table, const std::string& fault) {
        expect_refused(step_, [&] { edit_shard(table, same); }, {shard_.filename(), fault});
    };
    expect([](const std::string& text) { return swapped(text, "\"slabs\":["); },
           "disagree: tensor 'model/b' in the one, tensor 'model/a' in the other");
    expect(with("\"offset\":[0,0]", "\"offset\":[1,0]"), "disagree: tensor 'model/a' in the one");
    expect(with("\"size\":[4,3]", "\"size\":[3,3]"), "disagree: tensor 'model/a' in the one");
    expect(with("\"type\":\"f32\"", "\"type\":\"u32\""), "disagree: tensor 'model/a' in the one");
    expect(with("\"tensor\":\"model/a\"", "\"tensor\":\"model/c\""), "disagree: tensor 'model/c' in the one");
    expect(
        [](const std::string& text) {
            const size_t line = text.find("\n{") + 1;
            return text.substr(0, line) + text.substr(text.find("\n{", line) + 1);
        },
        "disagree: tensor 'model/b' in the one, tensor 'model/a' in the other");
}

TEST_F(Edited, AManifestHoldsTogether) {
    for (const auto& [from, to, fault] : std::initializer_list<std::array<const char*, 3>>{
             {"\"grid\":[2]", "\"grid\":[1,1,1,1,1,1,1,1,2]", "is not a valid grid"},
             {"\"grid\":[2]", "\"grid\":[1]", "cuts that do not fit the grid"},
             {"\"grid\":[2],", "", "without a grid"},
             {"\"cuts\":[[0,2,0]]", "\"cuts\":[[0,3,0]]", "cuts that do not fit"},
             {"\"cuts\":[[0,2,0]]", "\"cuts\":[[0,2,1]]", "cuts that do not fit"},
             {"\"cuts\":[[0,2,0]]", "\"cuts\":[[2,2,0]]", "cuts that do not fit"},
             {"\"cuts\":[[0,2,0]]", "\"cuts\":[[0,2,0],[0,1,0]]", "cuts that do not fit"},
             {"\"name\":\"model/b\"", "\"name\":\"model/a\"", "listed twice"},
             {"\"name\":\"model/b\"", "\"name\":\"model/a/b\"", "lies under another tensor, 'model/a'"},
             {"\"name\":\"model/b\"", "\"name\":\"model/../b\"", "is not a path"},
             {"\"name\":\"model/b\"", "\"name\":\"elements/f32\"", "is reserved"},
             {"\"name\":\"model/b\"", "\"name\":\"model/\\u0007\"", "control character"},
             {"\"name\":\"tokenizer.json\"", "\"name\":\"../tokenizer.json\"", "not a plain file name"},
             {"\"step\":7", "\"step\":8", "rename it to step-00000008"},
             {"\"step\":7", "\"step\":7,\"step\":7", "occurs twice"},
         }) {
        expect_refused(step_, [&] { edit(manifest_, with(from, to), same); }, {"step-00000007", fault});
    }
}

TEST_F(Edited, AManifestKeepsTheOrderOfItsShardsAndTensors) {
    const auto expect = [&](const std::string& list, const std::string& fault) {
        const auto table = [&](const std::string& text) { return swapped(text, list); };
        expect_refused(step_, [&] { edit(manifest_, table, same); }, {shard_.filename(), fault});
    };
    expect("\"files\":[", "foreign shard");
    expect("\"tensors\":[", "disagree: tensor 'model/a' in the one, tensor 'model/b' in the other");
}

TEST_F(Edited, AFullFileHoldsWholeTensors) {
    for (const auto& [from, to, fault] : std::initializer_list<std::array<const char*, 3>>{
             {"\"files\":[", "\"grid\":[1],\n\"files\":[", "both slabs and cuts"},
             {"\"file\":-1", "\"file\":0", "its slab names file 0"},
             {"\"size\":[8,3]", "\"size\":[7,3]", "[7, 3] of shape [8, 3]"},
             {"\"shape\":[8,3]", "\"shape\":[8,4]", "[8, 3] of shape [8, 4]"},
             {"\"files\":[", "\"files\":[{\"bytes\":512,\"check\":\"ffffffffffffffffffffffffffffffff\"}",
              "without a grid"},
         }) {
        expect_refused(full_, [&] { edit(full_, with(from, to), same); }, {"all.h5", fault});
    }
}

}  // namespace
}  // namespace argosy::checkpoint

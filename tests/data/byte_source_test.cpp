#include "data/byte_source.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "base/random.h"
#include "expect_error.h"
#include "scratch_folder.h"

namespace argosy::data {
namespace {

std::string gzip(const std::string& text) {
    z_stream stream{};
    constexpr int kLevel = 6, kWithGzipHeader = 15 + 16, kMemoryLevel = 8;
    deflateInit2(&stream, kLevel, Z_DEFLATED, kWithGzipHeader, kMemoryLevel, Z_DEFAULT_STRATEGY);
    std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    deflate(&stream, Z_FINISH);
    bytes.resize(stream.total_out);
    deflateEnd(&stream);
    return bytes;
}

std::string zstandard(const std::string& text) {
    std::string bytes(ZSTD_compressBound(text.size()), '\0');
    bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), /*level=*/1));
    return bytes;
}

class ByteSourceTest : public testing::Test {
  protected:
    /// The text in a file with these bytes, read in reads of `read_bytes`.
    std::string read(const std::string& bytes, size_t read_bytes = 4096) {
        write_file(folder_ / "a", bytes);
        ByteSource source(folder_ / "a");
        std::string text, buffer(read_bytes, '\0');
        while (const size_t count = source.read(buffer)) text.append(buffer, 0, count);
        EXPECT_EQ(source.stored_bytes_read(), std::ssize(bytes));
        return text;
    }

    /// Text that is neither all equal nor incompressible.
    static std::string text_of(size_t size) {
        RandomStream random(3, "text", 0);
        std::string text(size, ' ');
        for (char& character : text) character = "abcdefgh\n"[random.below(9)];
        return text;
    }

    const ScratchFolder folder_;
};

TEST_F(ByteSourceTest, RefusesWhatIsNoText) {
    const std::string zeros(20, '\0');
    EXPECT_ERROR(read("\xff\xfe" + std::string("a\0", 2)), UserError, "a is UTF-16 text", "iconv", "UTF-8");
    EXPECT_ERROR(read(gzip("GGUF\3" + zeros)), UserError, "a holds a GGUF model", "UTF-8");
    EXPECT_EQ(read(std::string("a\0b", 3)).size(), 3U);
}

TEST_F(ByteSourceTest, ADamagedBeginOfACompressedFileIsDamage) {
    write_file(folder_ / "b.bz2", "BZ!" + std::string("91AY&SY\1\2\3\0\4\5\6", 14));
    ByteSource source(folder_ / "b.bz2");
    std::string buffer(100, ' ');
    EXPECT_ERROR(source.read(buffer), DamageError, "b.bz2 is damaged", "not those of bz2 data");
}

TEST_F(ByteSourceTest, DecompressesWhatTheFirstBytesSay) {
    for (const size_t size : {0, 1, 3, 5000, 1'000'000}) {
        const std::string text = text_of(size);
        for (const size_t read_bytes : {1000, 1 << 20}) {
            EXPECT_EQ(read(text, read_bytes), text);
            EXPECT_EQ(read(gzip(text), read_bytes), text);
            EXPECT_EQ(read(zstandard(text), read_bytes), text);
        }
    }
    EXPECT_EQ(read(gzip("ab"), 1), "ab");
    EXPECT_EQ(read(zstandard("ab"), 1), "ab");
}

TEST_F(ByteSourceTest, ReadsSeveralMembersAndFrames) {
    EXPECT_EQ(read(gzip("one") + gzip("") + gzip("two")), "onetwo");
    EXPECT_EQ(read(zstandard("one") + zstandard("") + zstandard("two")), "onetwo");
    // pzstd puts the size of the frame that follows into a frame to be skipped.
    const std::string skipped("\x50\x2a\x4d\x18\x04\0\0\0size", 12);
    EXPECT_EQ(read(skipped + zstandard("one") + skipped + zstandard("two")), "onetwo");
}

TEST_F(ByteSourceTest, RefusesDamagedAndTruncatedBytes) {
    for (const auto& compress : {gzip, zstandard}) {
        const std::string whole = compress(text_of(100'000));
        EXPECT_ERROR(read(whole.substr(0, whole.size() - 5)), DamageError, "/a is damaged or incomplete",
                     "ends within");
        EXPECT_ERROR(read(whole + "x"), DamageError, "/a is damaged or incomplete");
    }
    std::string damaged = gzip(text_of(100'000));
    damaged[damaged.size() / 2] ^= 0x55;
    EXPECT_ERROR(read(damaged), DamageError, "/a is damaged or incomplete");
}

TEST_F(ByteSourceTest, RefusesWhatCannotBeRead) {
    EXPECT_ERROR(ByteSource(folder_ / "none"), UserError, "cannot open", "none", "No such file");
    EXPECT_ERROR(ByteSource(folder_ / ""), UserError, "is a folder");
}

TEST_F(ByteSourceTest, LinesEndWithALineBreakOrTheInput) {
    const std::string longest(3'000'000, 'x');
    write_file(folder_ / "a", "\none\r\n" + longest + "\n\nlast");
    LineReader reader(folder_ / "a");
    std::vector<std::string> lines;
    for (std::string_view line; reader.next(line);) lines.emplace_back(line);
    EXPECT_EQ(lines, (std::vector<std::string>{"", "one\r", longest, "", "last"}));
    EXPECT_EQ(reader.num_bytes(), 3'000'012);
}

}  // namespace
}  // namespace argosy::data

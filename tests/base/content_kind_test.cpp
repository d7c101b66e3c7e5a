#include "base/content_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace argosy {
namespace {

TEST(KindOfContent, NamesKnownFormsAndBinaryFiles) {
    const auto utf16 = [](const std::string& text, int order) {
        std::string bytes;
        for (const char one : text) (bytes += order ? one : '\0') += order ? '\0' : one;
        return bytes;
    };
    for (const int order : {0, 1}) {
        const std::string text = utf16("{\"text\": \"hello\"}\n", order);
        EXPECT_NE(kind_of_content(text).find(order ? "`iconv -f UTF-16LE " : "`iconv -f UTF-16BE "),
                  std::string::npos);
        EXPECT_NE(kind_of_content((order ? "\xff\xfe" : "\xfe\xff") + text).find("`iconv -f UTF-16 "),
                  std::string::npos);
    }
    EXPECT_NE(kind_of_content(std::string("\xff\xfe\0\0a\0\0\0", 8)).find("UTF-32 text"), std::string::npos);
    const std::string zeros(20, '\0');
    EXPECT_EQ(kind_of_content("GGUF\3" + zeros), "a GGUF model");
    EXPECT_NE(kind_of_content("PK\3\4" + zeros).find("PyTorch pickled (.pth"), std::string::npos);
    EXPECT_EQ(kind_of_content("\x80\2\x8a\n"), "weights that PyTorch pickled (.pth, .pt, .bin)");
    EXPECT_EQ(kind_of_content("\x10" + zeros.substr(0, 7) + "{\"a\":{}}"), "a safetensors file");
    EXPECT_EQ(kind_of_content("\xf0\x13" + zeros.substr(0, 6) + "{\"a\":" + std::string(5000, ' ') + "{}}"),
              "a safetensors file");
    EXPECT_NE(kind_of_content(utf16("It", 1) + "\x19\x20" + utf16("s a text with a curly quote", 1))
                  .find("iconv -f UTF-16LE"),
              std::string::npos);
    EXPECT_EQ(kind_of_content("BZh91AY" + zeros), "compressed with bzip2");
    EXPECT_EQ(kind_of_content("\1\2\3\4\5\6\7" + std::string(50, 'a')), "a binary file");
    for (const std::string& text :
         {std::string(), std::string("GGUF, PK and BZh are marks"), std::string("a\0b\0", 4),
          std::string("caf\xe9 \x1b[1m\t\r\n"), std::string("\xef\xbb\xbf{}"),
          std::string("N\bNA\bAM\bME\bE\x1e\x1f"), std::string(1000, 'a') + zeros}) {
        EXPECT_EQ(kind_of_content(text), "") << text;
    }
}

}  // namespace
}  // namespace argosy

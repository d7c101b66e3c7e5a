#include "data/token_parts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "data/stored_tokens.h"

namespace argosy::data {
namespace {

constexpr std::string_view kPartMark = "argosy part 3\n\n\n";
constexpr const char* kPlanFile = "plan.json";
constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;
constexpr int64_t kNoDocuments = -1;

/// This bit of a token's word says that the token does not count as a target. Tokens are less.
constexpr uint32_t kNotCounted = uint32_t{1} << 31;
static_assert(kMaxVocabSize <= kNotCounted);

std::vector<uint32_t> words_of(const EncodedDocuments& documents) {
    std::vector<uint32_t> words = documents.tokens;
    for (size_t i = 0; i < documents.loss_mask.size(); ++i)
        words[i] |= documents.loss_mask[i] ? 0 : kNotCounted;
    return words;
}

/// Takes the loss mask out of the tokens' words.
std::vector<uint8_t> take_loss_mask(std::span<uint32_t> tokens) {
    std::vector<uint8_t> loss_mask;
    for (uint32_t& token : tokens) {
        loss_mask.push_back((token & kNotCounted) == 0);
        token &= ~kNotCounted;
    }
    return loss_mask;
}

/// The first bytes of a part. The tokens follow, and then the number of tokens of each document.
struct Header {
    std::array<char, kPartMark.size()> mark{};
    int64_t kind = kNoDocuments;  // or a RecordKind
    int64_t num_tokens = 0, num_documents = 0, num_skipped = 0, num_repaired = 0;
    int64_t checksum = 0;  // of the bytes after the header

    int64_t sizes_offset() const { return int64_t{sizeof(Header)} + num_tokens * int64_t{sizeof(uint32_t)}; }
    int64_t file_bytes() const { return sizes_offset() + num_documents * int64_t{sizeof(int64_t)}; }
};

int64_t checksum_of(const RawFile& file, const Header& header) {
    return token_format::checksum(file, sizeof(Header), header.file_bytes() - int64_t{sizeof(Header)});
}

template <class Element>
void read_elements(const RawFile& file, int64_t offset, std::span<Element> elements) {
    file.read_at(offset, std::as_writable_bytes(elements));
}

Header read_header(const RawFile& file, const std::filesystem::path& path) {
    Header header;
    if (file.size_bytes() >= int64_t{sizeof(Header)}) read_elements(file, 0, std::span(&header, 1));
    if (!std::ranges::equal(header.mark, kPartMark) || file.size_bytes() != header.file_bytes())
        throw UserError("{} is not a part of this version; remove its folder", path.string());
    return header;
}

PartSummary summary_of(const Header& header) {
    PartSummary summary{.num_tokens = header.num_tokens,
                        .num_documents = header.num_documents,
                        .num_skipped = header.num_skipped,
                        .num_repaired = header.num_repaired};
    if (header.kind != kNoDocuments) summary.kind = static_cast<RecordKind>(header.kind);
    return summary;
}

}  // namespace

PartFolder::PartFolder(std::filesystem::path folder, std::string plan)
    : folder_(std::move(folder)), plan_(std::move(plan)) {}

void PartFolder::open() const {
    make_folders(folder_);
    const std::filesystem::path plan = folder_ / kPlanFile;
    if (!std::filesystem::exists(plan)) {
        PartialFile file(plan, [](const auto&) { return true; });
        file.append(plan_);
        file.commit();
    } else if (read_text(plan, kMaxPlanBytes) != plan_) {
        throw UserError(
            "{} is left from an interrupted run with other inputs, other options, or inputs that have "
            "changed "
            "since; run the same command as then to complete it, or remove the folder",
            folder_.string());
    }
}

bool PartFolder::has(int64_t piece) const { return std::filesystem::exists(part_path(piece)); }

void PartFolder::remove() const { std::filesystem::remove_all(folder_); }

std::filesystem::path PartFolder::part_path(int64_t piece) const {
    return folder_ / fmt::format("{:06}.part", piece);
}

PartWriter::PartWriter(const std::filesystem::path& path)
    : file_(path, begins_with(std::string(kPartMark))) {}

void PartWriter::add(const EncodedDocuments& documents) {
    if (!summary_.kind) summary_.kind = documents.kind;
    if (documents.kind && documents.kind != summary_.kind)
        refuse_mixed_kinds(documents.first_place, *documents.kind, *summary_.kind);
    const int64_t offset = Header{.num_tokens = summary_.num_tokens}.sizes_offset();
    const auto words = words_of(documents);
    file_.write_at(offset, std::as_bytes(std::span(words)));
    summary_.num_tokens += std::ssize(documents.tokens);
    summary_.num_documents += std::ssize(documents.sizes);
    summary_.num_skipped += std::ssize(documents.skipped);
    summary_.num_repaired += documents.num_repaired;
    sizes_.insert(sizes_.end(), documents.sizes.begin(), documents.sizes.end());
}

void PartWriter::commit() {
    Header header{.kind = summary_.kind ? static_cast<int64_t>(*summary_.kind) : kNoDocuments,
                  .num_tokens = summary_.num_tokens,
                  .num_documents = summary_.num_documents,
                  .num_skipped = summary_.num_skipped,
                  .num_repaired = summary_.num_repaired};
    std::ranges::copy(kPartMark, header.mark.begin());
    file_.write_at(header.sizes_offset(), std::as_bytes(std::span(sizes_)));
    header.checksum = checksum_of(RawFile::open_to_read(file_.partial_path()), header);
    file_.write_at(0, std::as_bytes(std::span(&header, 1)));
    file_.commit();
}

PartSummary part_summary(const std::filesystem::path& path) {
    return summary_of(read_header(RawFile::open_to_read(path), path));
}

PartSummary read_part(const std::filesystem::path& path,
                      const std::function<void(const EncodedDocuments&)>& take) {
    const RawFile file = RawFile::open_to_read(path);
    const Header header = read_header(file, path);
    if (checksum_of(file, header) != header.checksum)
        throw UserError("{} is damaged; remove this file, so that its piece is tokenized again",
                        path.string());
    const PartSummary summary = summary_of(header);

    constexpr int64_t kBlockDocuments = 4096;
    int64_t token = 0;
    for (int64_t document = 0; document < header.num_documents; document += kBlockDocuments) {
        throw_if_stop_requested();
        EncodedDocuments block{.kind = summary.kind};
        block.sizes.resize(std::min(kBlockDocuments, header.num_documents - document));
        read_elements(file, header.sizes_offset() + document * int64_t{sizeof(int64_t)},
                      std::span(block.sizes));
        block.tokens.resize(std::reduce(block.sizes.begin(), block.sizes.end()));
        read_elements(file, Header{.num_tokens = token}.sizes_offset(), std::span(block.tokens));
        token += std::ssize(block.tokens);
        if (summary.kind && has_loss_mask(*summary.kind)) block.loss_mask = take_loss_mask(block.tokens);
        take(block);
    }
    return summary;
}

}  // namespace argosy::data

#include "data/token_parts.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/program.h"
#include "base/raw_file.h"
#include "data/stored_tokens.h"

namespace argosy::data {
namespace {

constexpr std::string_view kPartMark = "argosy part 5\n\n\n";
constexpr const char* kPlanFile = "plan.json";
constexpr int64_t kMaxPlanBytes = int64_t{1} << 30;
constexpr int64_t kNoDocuments = -1, kEnd = -2;

/// A block is what one add() writes: this header, then the arrays of EncodedDocuments. The last block has no
/// arrays: it counts the blocks before it, and the records that all of them left out.
struct BlockHeader {
    int64_t kind = kNoDocuments;  // or kEnd, or a RecordKind
    int64_t num_tokens = 0, num_in_mask = 0, num_documents = 0, num_skipped = 0, num_repaired = 0;
    int64_t num_bytes = 0;  // of the arrays
    int64_t checksum = 0;   // of the header with 0 in this place, and of the arrays
};

template <class Element>
std::string_view bytes_of(std::span<const Element> elements) {
    return {reinterpret_cast<const char*>(elements.data()), elements.size_bytes()};
}

int64_t checksum_of(BlockHeader header, std::string_view arrays) {
    header.checksum = 0;
    std::string block(bytes_of<BlockHeader>({&header, 1}));
    block += arrays;
    return token_format::checksum(reinterpret_cast<const std::byte*>(block.data()), std::ssize(block));
}

/// Writes the header with its checksum, then the arrays.
void append_block(PartialFile& file, BlockHeader header, std::string_view arrays) {
    header.checksum = checksum_of(header, arrays);
    file.append(bytes_of<BlockHeader>({&header, 1}));
    file.append(arrays);
}

/// Moves the next `count` elements out of `arrays`.
template <class Element>
std::vector<Element> take_elements(std::string_view& arrays, int64_t count) {
    std::vector<Element> elements(count);
    std::copy_n(arrays.data(), count * sizeof(Element), reinterpret_cast<char*>(elements.data()));
    arrays.remove_prefix(count * sizeof(Element));
    return elements;
}

[[noreturn]] void refuse_damaged(const RawFile& file) {
    throw UserError("{} is damaged; remove this file, so that its piece is tokenized again",
                    file.path().string());
}

RawFile open_part(const std::filesystem::path& path) {
    RawFile file = RawFile::open_to_read(path);
    if (!begins_with(std::string(kPartMark))(path))
        throw UserError("{} is not a part of this version; remove its folder", path.string());
    return file;
}

struct Block {
    BlockHeader header;
    std::string arrays;
};

Block read_block(const RawFile& file, int64_t offset) {
    Block block;
    const int64_t room = file.size_bytes() - offset - int64_t{sizeof(BlockHeader)};
    if (room < 0) refuse_damaged(file);
    file.read_at(offset, std::as_writable_bytes(std::span(&block.header, 1)));
    if (block.header.num_bytes < 0 || block.header.num_bytes > room) refuse_damaged(file);
    block.arrays.resize(block.header.num_bytes);
    file.read_at(offset + int64_t{sizeof(BlockHeader)}, std::as_writable_bytes(std::span(block.arrays)));
    if (checksum_of(block.header, block.arrays) != block.header.checksum) refuse_damaged(file);
    return block;
}

EncodedDocuments documents_of(const Block& block) {
    std::string_view arrays = block.arrays;
    EncodedDocuments documents{.num_repaired = block.header.num_repaired};
    documents.tokens = take_elements<uint32_t>(arrays, block.header.num_tokens);
    documents.loss_mask = take_elements<uint8_t>(arrays, block.header.num_in_mask);
    documents.sizes = take_elements<int64_t>(arrays, block.header.num_documents);
    documents.skipped.resize(block.header.num_skipped);
    if (block.header.kind != kNoDocuments) documents.kind = static_cast<RecordKind>(block.header.kind);
    return documents;
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

PartWriter::PartWriter(const std::filesystem::path& path) : file_(path, begins_with(std::string(kPartMark))) {
    file_.append(kPartMark);
}

void PartWriter::add(const EncodedDocuments& documents) {
    if (documents.kind && kind_ && documents.kind != kind_)
        refuse_mixed_kinds(documents.first_place, *documents.kind, *kind_);
    if (documents.kind) kind_ = documents.kind;
    std::string arrays(bytes_of<uint32_t>(documents.tokens));
    arrays.append(bytes_of<uint8_t>(documents.loss_mask)).append(bytes_of<int64_t>(documents.sizes));
    const BlockHeader header{.kind = documents.kind ? static_cast<int64_t>(*documents.kind) : kNoDocuments,
                             .num_tokens = std::ssize(documents.tokens),
                             .num_in_mask = std::ssize(documents.loss_mask),
                             .num_documents = std::ssize(documents.sizes),
                             .num_skipped = std::ssize(documents.skipped),
                             .num_repaired = documents.num_repaired,
                             .num_bytes = std::ssize(arrays)};
    append_block(file_, header, arrays);
    ++num_blocks_;
    num_skipped_ += header.num_skipped;
}

void PartWriter::commit() {
    append_block(file_, {.kind = kEnd, .num_documents = num_blocks_, .num_skipped = num_skipped_}, "");
    file_.commit();
}

void read_part(const std::filesystem::path& path, const std::function<void(const EncodedDocuments&)>& take) {
    const RawFile file = open_part(path);
    int64_t offset = std::ssize(kPartMark);
    for (int64_t num_blocks = 0;; ++num_blocks) {
        throw_if_stop_requested();
        const Block block = read_block(file, offset);
        offset += int64_t{sizeof(BlockHeader)} + block.header.num_bytes;
        if (block.header.kind == kEnd) {
            if (block.header.num_documents != num_blocks || offset != file.size_bytes()) refuse_damaged(file);
            return;
        }
        take(documents_of(block));
    }
}

int64_t num_skipped_in(const std::filesystem::path& path) {
    const RawFile file = open_part(path);
    const BlockHeader end = read_block(file, file.size_bytes() - int64_t{sizeof(BlockHeader)}).header;
    if (end.kind != kEnd) refuse_damaged(file);
    return end.num_skipped;
}

}  // namespace argosy::data

// The tables of FORMAT.md as values and as JSON text. Parsing trusts no input: every text gives either a
// valid table or a UserError that names the fault.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hash.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/tensor_source.h"

namespace argosy::checkpoint {

/// A range of bytes in a file.
struct ByteRange {
    int64_t at = 0, num_bytes = 0;
    bool operator==(const ByteRange&) const = default;
};

/// The file that contains a table: its length, and the place of the table, which nothing else may share.
struct TableFile {
    int64_t num_bytes = 0;
    ByteRange table = {};  // none before the table is placed
};

struct StoredSlab {
    int file = kThisFile;
    layout::Slab slab;
    int64_t at = 0;  // byte offset in its file
    Hash hash;
    static constexpr int kThisFile = -1;
    bool operator==(const StoredSlab&) const = default;
};

struct StoredTensor {
    TensorInfo info;
    std::vector<StoredSlab> slabs;
    bool operator==(const StoredTensor&) const = default;
};

struct StoredFile {
    std::string name;  // relative to the step's folder
    int64_t num_bytes = 0;
    Hash check;  // the check of its user block
    bool operator==(const StoredFile&) const = default;
};

/// A file that a checkpoint contains beside its tensors, such as a file of the tokenizer.
struct Asset {
    std::string name;
    std::string bytes;
};

struct StoredAsset {
    std::string name;
    int64_t at = 0, num_bytes = 0;
    Hash hash;
    bool operator==(const StoredAsset&) const = default;
};

/// The contents of a checkpoint apart from its tensors and assets. `model` and `state` are JSON objects as
/// text, whose contents other rooms define; a table prints each of them on one line.
struct Description {
    int64_t step = 0;
    std::string program;  // version of the program that wrote the checkpoint
    std::string mesh;
    bool model_only = false;
    std::string model;   // Hugging Face's config.json
    std::string config;  // TOML; empty if there was no run
    std::string state;   // of the trainer; "{}" if there was no run
    bool operator==(const Description&) const = default;
};

struct ShardTable {
    Hash set;
    std::vector<StoredTensor> tensors;  // each with one slab, or none if the tensor has no elements
    bool operator==(const ShardTable&) const = default;
};

/// The table of a step or of a full file. A step has a `plan`, from which the slabs follow; file i is the
/// shard of writer i. A full file has `tensors`, each whole in it, and an empty plan.
struct Manifest {
    Hash set;
    Description description;
    SavePlan plan;
    std::vector<StoredFile> files;
    std::vector<StoredAsset> assets;
    std::vector<StoredTensor> tensors;
    bool is_full() const { return plan.grid.empty(); }
    bool operator==(const Manifest&) const = default;
};

std::string to_json(const ShardTable& table);
std::string to_json(const Manifest& manifest);
/// The grid and the tensors as in a manifest, for ranks that exchange their plans.
std::string to_json(const SavePlan& plan);

/// `place` is for messages.
ShardTable parse_shard_table(std::string_view text, const std::string& place, const TableFile& file);
Manifest parse_manifest(std::string_view text, const std::string& place, const TableFile& file);
SavePlan parse_plan(std::string_view text, const std::string& place);

// The checks of table_check.cpp, for tables that were read and tables that are to be written. Each throws
// UserError, which begins with `place`. All but gaps() are for this room.

/// Checks that the name is a possible HDF5 path and not reserved by FORMAT.md, and that the number of bytes
/// fits an int64_t.
void check_info(const TensorInfo& info, const std::string& place);

/// Checks that the name is a plain file name without a folder.
void check_file_name(const std::string& name, const std::string& place);

/// Checks a whole table: names, shapes, slabs, and that no two byte ranges of a file overlap.
void check_table(const ShardTable& table, const std::string& place, const TableFile& file);
void check_table(const Manifest& manifest, const std::string& place, const TableFile& file);

/// The byte ranges, ascending, between the user block and the file's end that none of `ranges` covers.
/// UserError if two of `ranges` overlap, or if one of them ends after the file.
std::vector<ByteRange> gaps(std::vector<ByteRange> ranges, const std::string& place, int64_t file_bytes);

}  // namespace argosy::checkpoint

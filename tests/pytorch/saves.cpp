// Dumps a distributed checkpoint or a file of torch.save for other programs, and writes one anew:
//   saves dump PATH DIR [MAX_ELEMENTS]  elements of tensor N in DIR/N, read by slabs of at most MAX_ELEMENTS;
//   prints a
//                                       line for each tensor ("N type [shape] name") and object ("object name
//                                       value")
//   saves copy FROM TO MAX_FILE_BYTES   FROM is a distributed checkpoint; writes on two threads
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "pytorch/distributed_checkpoint.h"
#include "pytorch/distributed_checkpoint_writer.h"
#include "pytorch/saved_file.h"

namespace {

using namespace argosy;
using namespace argosy::pytorch;

/// A value as Python's repr() shows it.
std::string repr(Value value) {
    const auto joined = [](auto values) {
        std::string text;
        for (const Value& item : values) text += (text.empty() ? "" : ", ") + repr(item);
        return text;
    };
    switch (value.kind()) {
        case Value::Kind::Text:
            return fmt::format("'{}'", *value.text());
        case Value::Kind::Float: {
            const std::string text = value.shown();
            return text.find_first_of(".en") == text.npos ? text + ".0" : text;
        }
        case Value::Kind::List:
            return fmt::format("[{}]", joined(value.items()));
        case Value::Kind::Tuple:
            return fmt::format("({}{})", joined(value.items()), value.items().size() == 1 ? "," : "");
        case Value::Kind::Dict: {
            std::string text;
            for (const auto& [key, item] : value.entries())
                text += (text.empty() ? "" : ", ") + repr(key) + ": " + repr(item);
            return "{" + text + "}";
        }
        default:
            return value.shown();
    }
}

Object object_of(Value value) {
    switch (value.kind()) {
        case Value::Kind::Bool:
            return {*value.boolean()};
        case Value::Kind::Int:
            return {*value.integer()};
        case Value::Kind::Float:
            return {*value.number()};
        case Value::Kind::Text:
            return {*value.text()};
        case Value::Kind::List: {
            ObjectList list;
            for (const Value& item : value.items()) list.push_back(object_of(item));
            return {list};
        }
        case Value::Kind::Tuple: {
            ObjectTuple tuple;
            for (const Value& item : value.items()) tuple.items.push_back(object_of(item));
            return {tuple};
        }
        case Value::Kind::Dict: {
            ObjectDict dict;
            for (const auto& [key, item] : value.entries()) dict.emplace_back(*key.text(), object_of(item));
            return {dict};
        }
        default:
            return {};
    }
}

void dump(const checkpoint::TensorSource& source, const std::filesystem::path& folder, int64_t max_elements) {
    for (size_t i = 0; i < source.tensors().size(); ++i) {
        const checkpoint::TensorInfo& tensor = source.tensors()[i];
        std::ofstream out(folder / std::to_string(i), std::ios::binary);
        for (const layout::Slab& slab : layout::consecutive_slabs(tensor.shape, max_elements)) {
            std::vector<std::byte> bytes(slab.num_elements() * size_bytes(tensor.type));
            source.read(tensor, slab, bytes);
            out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
        }
        fmt::print("{} {} {} {}\n", i, tensor.type_name(), tensor.shape, tensor.name);
    }
}

void dump_path(const std::filesystem::path& path, const std::filesystem::path& folder, int64_t max_elements) {
    if (!is_distributed_checkpoint(path)) {
        const SavedFile file(path);
        dump(file, folder, max_elements);
        for (const OtherTensor& other : file.other_tensors())
            fmt::print("other {} {}\n", other.name, other.type);
        return;
    }
    const DistributedCheckpoint checkpoint(path);
    dump(checkpoint, folder, max_elements);
    for (const std::string& key : checkpoint.object_keys())
        fmt::print("object {} {}\n", key, repr(checkpoint.object(key)->root()));
    for (const OtherTensor& other : checkpoint.other_tensors())
        fmt::print("other {} {}\n", other.name, other.type);
}

void copy_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                     int64_t max_file_bytes) {
    const DistributedCheckpoint source(from);
    DistributedCheckpointWriter::Options options{to, source.tensors(), {}, max_file_bytes};
    for (const std::string& key : source.object_keys())
        options.objects.emplace(key, object_of(source.object(key)->root()));
    DistributedCheckpointWriter writer(options);
    const auto write = [&](size_t first) {
        for (size_t i = first; i < options.tensors.size(); i += 2) {
            int64_t from = 0;
            for (const layout::Slab& slab : layout::consecutive_slabs(options.tensors[i].shape, 7)) {
                std::vector<std::byte> bytes(slab.num_elements() * size_bytes(options.tensors[i].type));
                source.read(options.tensors[i], slab, bytes);
                writer.write(i, from, bytes);
                from += std::ssize(bytes);
            }
        }
    };
    std::thread other(write, 1);
    write(0);
    other.join();
    writer.finish();
}

}  // namespace

int main(int argc, char** argv) try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.at(0) == "dump")
        dump_path(words.at(1), words.at(2), words.size() > 3 ? std::stoll(words[3]) : 1 << 20);
    if (words.at(0) == "copy") copy_checkpoint(words.at(1), words.at(2), std::stoll(words.at(3)));
    return 0;
} catch (const argosy::Error& error) {
    std::fputs((std::string(error.what()) + "\n").c_str(), stderr);
    return static_cast<int>(error.code());
}

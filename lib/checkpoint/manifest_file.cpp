#include "checkpoint/manifest_file.h"

#include "checkpoint/output_file.h"

namespace argosy::checkpoint {
namespace {

void create_view(h5::File& file, const StoredTensor& tensor, const std::vector<StoredFile>& shards) {
    std::vector<h5::VirtualSource> sources;
    for (const StoredSlab& stored : tensor.slabs) {
        sources.push_back({.file = shards[stored.file].name,
                           .dataset = tensor.info.name,
                           .offset = stored.slab.offset,
                           .size = stored.slab.size});
    }
    if (sources.empty()) {
        file.create_dataset(tensor.info.name, tensor.info.type, tensor.info.shape);
    } else {
        file.create_virtual_dataset(tensor.info.name, tensor.info.type, tensor.info.shape, sources);
    }
}

}  // namespace

void write_manifest(const std::filesystem::path& path, Manifest manifest, const std::vector<Asset>& assets) {
    OutputFile out(path, FileKind::Manifest, [&](h5::File& file) {
        manifest.assets = place_assets(file, assets);
        for (const StoredTensor& tensor : manifest.tensors) create_view(file, tensor, manifest.files);
        return to_json(manifest);
    });
    write_assets(out, manifest.assets, assets);
    std::vector<ByteRange> checked;
    for (const StoredAsset& asset : manifest.assets) checked.push_back({asset.at, asset.num_bytes});
    out.finish(to_json(manifest), std::move(checked));
}

}  // namespace argosy::checkpoint

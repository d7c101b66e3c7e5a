// Classes and functions of torch.save's files and of the metadata of distributed checkpoints.
#include <array>

#include "pytorch/pickle_reader.h"

namespace argosy::pytorch {

KnownClasses known_classes() {
    // clang-format off
    static constexpr auto kClasses = std::to_array<std::string_view>({
        // Values, also as protocol 2 has them
        "__builtin__.bytes", "__builtin__.dict", "__builtin__.list", "__builtin__.set",
        "_codecs.encode", "argparse.Namespace", "builtins.dict", "builtins.list", "builtins.set",
        "collections.Counter", "collections.OrderedDict", "collections.defaultdict",
        "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath", "torch.Size",
        "torch.device",
        // Types of tensors
        "torch.bfloat16", "torch.bool", "torch.complex128", "torch.complex64", "torch.float16",
        "torch.float32", "torch.float64", "torch.float8_e4m3fn", "torch.float8_e4m3fnuz",
        "torch.float8_e5m2", "torch.float8_e5m2fnuz", "torch.float8_e8m0fnu", "torch.int16",
        "torch.int32", "torch.int64", "torch.int8", "torch.uint16", "torch.uint32", "torch.uint64",
        "torch.uint8",
        // Tensors
        "torch.BFloat16Storage", "torch.BoolStorage", "torch.ByteStorage", "torch.CharStorage",
        "torch.ComplexDoubleStorage", "torch.ComplexFloatStorage", "torch.DoubleStorage",
        "torch.FloatStorage", "torch.HalfStorage", "torch.IntStorage", "torch.LongStorage",
        "torch.ShortStorage", "torch.Tensor", "torch._tensor._rebuild_from_type_v2",
        "torch._utils._rebuild_parameter", "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3",
        "torch.nn.parameter.Parameter", "torch.serialization._get_layout",
        "torch.storage.UntypedStorage",
        // Metadata of distributed checkpoints, of torch 2.3 and older too
        "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
        "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
        "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
        "torch.distributed.checkpoint.metadata.Metadata",
        "torch.distributed.checkpoint.metadata.MetadataIndex",
        "torch.distributed.checkpoint.metadata.StorageMeta",
        "torch.distributed.checkpoint.metadata.TensorProperties",
        "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
        "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    });
    // clang-format on
    return kClasses;
}

}  // namespace argosy::pytorch

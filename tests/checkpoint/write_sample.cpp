// write_sample FOLDER SEED: a random checkpoint for readers in other languages: FOLDER/run/step-00000007 of
// three writers, FOLDER/joint/step-00000007 of twelve writers with cuts that name sets of axes, FOLDER/all.h5
// the same in one file, and FOLDER/tensors.json: [{"name", "type", "shape", "file"}] with each tensor's bytes
// in a file of its own.
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>

#include "checkpoint/sample.h"
#include "scratch_folder.h"

int main(int argc, char** argv) {
    using namespace argosy;
    if (argc != 3) return 2;
    const std::filesystem::path folder = argv[1];
    checkpoint::Random random(std::strtoull(argv[2], nullptr, 10));
    const checkpoint::Sample sample = checkpoint::random_sample(random, 40);
    checkpoint::write_step(random, folder / "run", sample, 3);
    checkpoint::write_step(random, folder / "joint", sample, 12, 7, checkpoint::Cuts::Joint);
    checkpoint::write_full_file(random, folder / "all.h5", sample);
    std::vector<std::string> lines;
    for (const checkpoint::TensorInfo& tensor : sample.tensors) {
        const std::vector<std::byte>& bytes = sample.bytes.at(tensor.name);
        const std::string file = fmt::format("tensor-{}", lines.size());
        write_file(folder / file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        lines.push_back(fmt::format(R"({{"name":"{}","type":"{}","shape":[{}],"file":"{}"}})", tensor.name,
                                    tensor.type_name(), fmt::join(tensor.shape, ","), file));
    }
    write_file(folder / "tensors.json", fmt::format("[{}]", fmt::join(lines, ",")));
}

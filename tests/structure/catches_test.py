#!/usr/bin/env python3
"""Tests the checkers: each fault planted in a small tree is reported, and the clean tree has no report."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import MappingProxyType

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import check_headers  # noqa: E402
import check_kernels  # noqa: E402
import check_layers  # noqa: E402
import check_readme  # noqa: E402
import check_sizes  # noqa: E402
import check_text  # noqa: E402
import summary  # noqa: E402

LAYERS = "low/base: | fmt\nlow/mesh: base | mpi\nhigh/model: mesh | torch\n"
TREE = {
    "lib/LAYERS": LAYERS,
    "lib/NUMERICS.md": "x\n",
    "lib/README.md": "x\n",
    "lib/low/README.md": "| `base` | x |\n| `mesh` | x |\n",
    "lib/high/README.md": "| `model` | x |\n",
    "lib/low/base/error.h": "#pragma once\n#include <fmt/format.h>\n#include <string>\n",
    "lib/low/mesh/mesh.h": '#pragma once\n#include <mpi.h>\n\n#include "base/error.h"\n',
    "lib/low/mesh/mesh.cpp": '#include "mesh/mesh.h"\n\n#include <sys/mman.h>\n',
    "lib/high/model/block.h": '#pragma once\n#include <ATen/core/Tensor.h>\n\n#include "mesh/mesh.h"\n',
    "apps/pretrain.cpp": '#include <CLI/CLI.hpp>\n\n#include "model/block.h"\n',
    "README.md": "```\n./jobs/quickstart.sh  # one\n./tests/run.sh\n```\nSee `apps/pretrain.cpp`, `lib/`.\n",
    "apps/README.md": "`pretrain.cpp`\n",
    "configs/ARRIVING.md": "`jobs/quickstart.sh`\n",
    "jobs/README.md": "`quickstart.sh` makes `outputs/quickstart/metrics.jsonl`\n",
    "tests/README.md": "[run](run.sh)\n",
    "tests/speed/README.md": "`ops.cpp`\n",
    "tests/speed/ops.cpp": "",
    "jobs/quickstart.sh": "#!/bin/sh\n",
    "tests/run.sh": "#!/bin/sh\n",
    ".ci/run": "#!/bin/sh\nexec ./tests/run.sh\n",
}


@contextlib.contextmanager
def tree(changes):
    """TREE in a temporary folder, with some files replaced (None: left out)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in (TREE | dict(changes)).items():
            if text is not None:
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o755)
        yield root


class Catches(unittest.TestCase):
    def expect(self, checker, fault=None, changes=MappingProxyType({})):
        """Expects one violation that contains `fault`, or none at all."""
        with tree(changes) as root:
            violations = checker.check(root)
        self.assertEqual(len(violations), 1 if fault else 0, violations)
        if fault:
            self.assertIn(fault, violations[0])


class Layers(Catches):
    def test_clean(self):
        self.expect(check_layers)

    def test_includes(self):
        def model(line):
            return {"lib/high/model/block.h": line + "\n"}

        self.expect(check_layers, "base may not use mesh", {"lib/low/base/error.h": '#include "mesh/mesh.h"\n'})
        self.expect(check_layers, "library mpi", model("#include <mpi.h>"))
        self.expect(check_layers, "library hdf5", model("  #  include <H5public.h>"))
        self.expect(check_layers, "library toml", model("#include <toml++/toml.h>"))
        self.expect(check_layers, "library cli", model("#include <CLI/CLI.hpp>"))
        self.expect(check_layers, "library json", model("#include <nlohmann/json_fwd.hpp>"))
        self.expect(check_layers, "no known library", model("#include <lz4.h>"))
        self.expect(check_layers, "no known library", model("#include <gtest/gtest.h>"))
        self.expect(check_layers, "too heavy", model("#include <ATen/ATen.h>"))
        self.expect(check_layers, "not spelled", model('#include "block_parts.h"'))
        self.expect(check_layers, "not spelled", model('#include "../mesh/mesh.h"'))
        self.expect(check_layers, "library torch", {"apps/pretrain.cpp": "#include <ATen/core/Tensor.h>\n"})
        self.expect(check_layers, "first include", {"lib/low/mesh/mesh.cpp": '#include <string>\n#include "mesh/mesh.h"\n'})

    def test_subfolders_belong_to_their_module(self):
        self.expect(check_layers, "mesh may not use model", {"lib/low/mesh/parts/axis.h": '#include "model/block.h"\n'})

    def test_list(self):
        self.expect(check_layers, "not named above", {"lib/LAYERS": LAYERS.replace("base: |", "base: mesh |")})
        self.expect(check_layers, "not among the rooms of its wing low", {
            "lib/LAYERS": LAYERS + "low/ops: base |\n", "lib/low/ops/sum.h": '#pragma once\n#include "base/error.h"\n'})
        self.expect(check_layers, "listed twice", {"lib/LAYERS": "low/base: | fmt\n" + LAYERS})
        self.expect(check_layers, "not of the form", {"lib/LAYERS": LAYERS + "ops base torch\n"})
        self.expect(check_layers, "no family", {"lib/LAYERS": LAYERS.replace("mpi", "mpi rdma")})
        self.expect(check_layers, "model names base, but", {"lib/LAYERS": LAYERS.replace("model: ", "model: base ")})
        self.expect(check_layers, "no folder", {"lib/LAYERS": LAYERS + "high/train: model |\n"})
        self.expect(check_layers, "not listed", {"lib/high/train/step.h": "#pragma once\n"})


@unittest.mock.patch.object(check_sizes, "budgets", lambda: {"lib/low": 500, "lib/high": 500, "apps": 9})
class Sizes(Catches):
    def found(self, changes):
        with tree(changes) as root:
            return "\n".join(check_sizes.check(root))

    def test_clean(self):
        self.expect(check_sizes)

    def test_long_file(self):
        self.assertIn("lib/high/model/block.h: 401 lines", self.found({"lib/high/model/block.h": "\n" * 401}))
        self.assertNotIn("block.h", self.found({"lib/high/model/block.h": "\n" * 400}))

    def test_long_function(self):
        self.assertNotIn("a function", self.found({"lib/low/mesh/mesh.cpp": self.function(60) + self.function(50)}))
        self.assertIn("lib/low/mesh/mesh.cpp:4: a function of 61 lines",
                      self.found({"lib/low/mesh/mesh.cpp": "int few() {\n}\n\n" + self.function(61)}))
        inside = "".join(f"    {line}\n" for line in self.function(61).splitlines())
        self.assertIn("lib/low/mesh/mesh.cpp:4: a function of 61 lines", self.found({
            "lib/low/mesh/mesh.cpp": f"class Mesh final : public Grid,\n                   public Named {{\n  public:\n{inside}}};\n"}))

    def test_budgets(self):
        half = "\n" * 300
        self.expect(check_sizes, "lib/high: 604 lines; its budget is 500",
                    {"lib/high/model/one.h": half, "lib/high/model/other.h": half})
        self.expect(check_sizes, "not in a wing that BUDGETS.md names", {"lib/attic/old.h": ""})

    def test_percentiles(self):
        self.expect(check_sizes, "percentile of functions", {"lib/low/mesh/mesh.cpp": self.function(59)})

    def test_headers_with_a_single_user(self):
        for changes, count in (({}, 3), ({"tests/mesh_test.cpp": '#include "mesh/mesh.h"\n'}, 2)):
            with tree(changes) as root:
                self.assertIn(f"3, of which {count} have", check_sizes.measure(root)[0][2])

    @staticmethod
    def function(num_lines):
        return "int made(int x) {\n" + "    ++x;\n" * (num_lines - 2) + "}\n"


class Headers(unittest.TestCase):
    def check(self, changes):
        """The headers that do not compile in a tree with only the room `base`."""
        files = {name: None for name in TREE if name.startswith(("lib/low/mesh", "lib/high/model"))}
        files["lib/low/base/error.h"] = "#pragma once\n#include <string>\ninline std::string text;\n"
        with tree(files | changes) as root:
            command = f"ccache {os.environ.get('CXX', 'c++')} -I{root}/lib/low -MD -MF x.d -o x.o -c {root}/lib/low/base/a.cpp"
            (root / "compile_commands.json").write_text(json.dumps(
                [{"directory": str(root), "file": f"{root}/lib/low/base/a.cpp", "command": command}]))
            return [header for header, _ in check_headers.check(root, root)[1]]

    def test_catches(self):
        self.assertEqual(self.check({}), [])
        self.assertEqual(self.check({"lib/low/base/log.h": "#pragma once\nstd::string text();\n"}), ["base/log.h"])
        self.assertEqual(self.check({"lib/low/base/log.h": "struct Log {};\n"}), ["base/log.h"])
        uses_both = '#pragma once\n#include "base/error.h"\n#include "base/log.h"\n'
        self.assertEqual(self.check({"lib/low/base/log.h": "#pragma once\nstd::string line();\n",
                                     "lib/low/base/program.h": uses_both}), ["base/log.h"])
        self.assertEqual(self.check({"lib/low/base/with_cuda/log.h": "#pragma once\n#include <absent.h>\n"}), [])

    def test_catches_beside_tensors(self):
        tensors = {"lib/low/ATen/core/Tensor.h": "#pragma once\nnamespace at { struct Tensor {}; }\n",
                   "lib/low/base/log.h": "#pragma once\n#include <ATen/core/Tensor.h>\ninline at::Tensor known;\n"}
        self.assertEqual(self.check(tensors), [])
        uses_it = '#pragma once\n#include "base/log.h"\ninline at::Tensor other = known;\n'
        self.assertEqual(self.check(tensors | {"lib/low/base/program.h": uses_it}), [])
        self.assertEqual(self.check(tensors | {"lib/low/base/program.h": uses_it + "std::string line();\n"}), ["base/program.h"])
        forgets = "#pragma once\ninline at::Tensor other;\n"
        self.assertEqual(self.check(tensors | {"lib/low/base/program.h": forgets}), ["base/program.h"])


class Kernels(unittest.TestCase):
    def check(self, source):
        """The violations of one object for avx2, compiled from `source`."""
        with tree({"kernel.cpp": source}) as root:
            folder = root / "lib/CMakeFiles/argosy_kernels_avx2.dir/numerics/kernels/cpu"
            folder.mkdir(parents=True)
            subprocess.run([os.environ.get("CXX", "c++"), "-O0", "-c", root / "kernel.cpp", "-o", folder / "kernel.o"],
                           check=True)
            return check_kernels.check(root)

    def test_catches(self):
        within, outside = "namespace argosy::kernels::avx2 {", "namespace argosy::base {"
        body = "inline int twice(int x) { return 2 * x; } } int four() { return argosy::"
        self.assertEqual(self.check(within + body + "kernels::avx2::twice(2); }"), [])
        found = self.check(outside + body + "base::twice(2); }")
        self.assertEqual(len(found), 1, found)
        self.assertIn("argosy::base::twice(int) may be shared", found[0])

    def test_nothing_to_check(self):
        with tree({}) as root:
            self.assertIn("no objects", check_kernels.check(root)[0])


class Readme(Catches):
    def test_clean(self):
        self.expect(check_readme)

    def test_commands(self):
        self.expect(check_readme, "first code block",
                    {"README.md": "```\n./jobs/quickstart.sh\nmake\n./tests/run.sh\n```\n"})
        self.expect(check_readme, "first code block", {"README.md": "nothing\n"})
        self.expect(check_readme, "does not call", {".ci/run": "#!/bin/sh\nctest\n"})
        self.expect(check_readme, "does not call", {".ci/run": "#!/bin/sh\n# ./tests/run.sh\n"})

    def test_paths(self):
        readme = TREE["README.md"]
        self.expect(check_readme, "lib/gone.h", {"README.md": readme + "and `lib/gone.h`\n"})
        self.expect(check_readme, "configs/gone.toml",
                    {"README.md": readme + "```\npretrain --config configs/gone.toml\n```\n"})
        self.expect(check_readme, "mesh/gone.h", {"lib/README.md": TREE["lib/README.md"] + "`mesh/gone.h`\n"})
        self.expect(check_readme, "does not exist", {"jobs/README.md": None})

    def test_map(self):
        self.expect(check_readme, "no row for the room model", {"lib/high/README.md": "x\n"})
        self.expect(check_readme, "train is no room", {"lib/low/README.md": TREE["lib/low/README.md"] + "| `train` | x |\n"})


class Text(Catches):
    def test_text(self):
        self.expect(check_text)
        self.expect(check_text, "machine", {"jobs/a.sh": "cd /" + "work/main\n"})
        self.expect(check_text, "machine", {"lib/a.h": 'f("/' + 'root/x");\n'})
        self.expect(check_text, "whitespace", {"lib/a.h": "int a; \n"})
        self.expect(check_text, "later", {"lib/a.h": "// TO" + "DO: more\n"})
        self.expect(check_text, "newline", {"lib/a.h": "int a;"})
        self.expect(check_text, "base/strict_json.h", {"lib/a.h": "auto a = nlohmann::json::parse(text);\n"})
        self.expect(check_text, changes={"lib/ground/base/strict_json.cpp": "json::sax_parse(text);\n"})


class Summary(unittest.TestCase):
    def summarise(self, *entries):
        return summary.summarise(ElementTree.fromstring(f"<testsuite>{''.join(entries)}</testsuite>"))

    @staticmethod
    def entry(name, status, output="", inner=""):
        return f'<testcase name="{name}" status="{status}">{inner}<system-out>{output}</system-out></testcase>'

    def test_counts(self):
        skipped = '<skipped message="SKIP_RETURN_CODE=77"/>'
        case = "[ RUN      ] A.b\na_test.cpp:3: Skipped\nno AVX-512 here\n\n[  SKIPPED ] A.b (0 ms)\n"
        self.assertEqual(
            self.summarise(self.entry("p", "run"), self.entry("f", "fail"), self.entry("c", "run", case),
                           self.entry("s", "notrun", "x\nskipped: no shellcheck\n", skipped),
                           self.entry("d", "disabled"),
                           self.entry("n", "notrun", "", '<skipped message="Unable to find executable"/>')),
            (2, {"f": [], "n": []}, [("c: A.b", "no AVX-512 here"), ("s", "no shellcheck"), ("d", "disabled")]))

    def test_says_why_a_test_failed(self):
        case = "[ RUN      ] A.b\na_test.cpp:3: Failure\nExpected 1\n\n[  FAILED  ] A.b (0 ms)\n"
        lines = "\n".join(f"line {number}" for number in range(100))
        _, failed, _ = self.summarise(self.entry("g", "fail", case), self.entry("s", "fail", lines))
        self.assertEqual(failed["g"], ["a_test.cpp:3: Failure", "Expected 1", "[  FAILED  ] A.b (0 ms)"])
        self.assertEqual(failed["s"][-1], "line 99", "the end of an output without such a line")

    def test_a_second_run(self):
        files = []
        for statuses in ({"a": "run", "b": "fail", "c": "fail"}, {"b": "run", "c": "fail"}):
            files.append(tempfile.NamedTemporaryFile("w", suffix=".xml"))
            self.addCleanup(files[-1].close)
            files[-1].write(f"<testsuite>{''.join(self.entry(*one) for one in statuses.items())}</testsuite>")
            files[-1].flush()
        first, again = (file.name for file in files)

        def said(*words):
            done = subprocess.run([sys.executable, summary.__file__, *words], capture_output=True, text=True)
            return done.returncode, done.stdout.strip()

        self.assertEqual(said("--failed", first), (0, "b\nc"))
        self.assertEqual(said(first), (1, "failed   b\nfailed   c\n1 passed, 2 failed, 0 skipped"))
        self.assertEqual(said(first, again), (1, "failed beside other tests, passed alone: b\nfailed   c\n"
                                                 "2 passed (1 of them alone), 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()

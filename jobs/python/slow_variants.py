"""The experiments of why_slow.sh: each changes one thing of a run. An experiment that does not apply is left out with its
reason. The remedies are in the table of causes in WHY_SLOW.md."""
import dataclasses
import math
import pathlib
import re

# The variables of SlowSetting's table (lib/ground/base/environment.cpp), which a run on GPUs warns of, and this program's own that are
# for tests. tests/jobs/alternating_test.py compares the lists.
DEBUG_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_TF32_OVERRIDE", "NCCL_DEBUG", "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_GRAPH_REGISTER", "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "MALLOC_CHECK_", "MALLOC_PERTURB_")
OWN_VARIABLES = ("ARGOSY_CPU_KERNELS", "ARGOSY_SYNCHRONOUS_SENDS")
# Values that slow nothing down: the default of the library or of this program, a log of a few lines, or what this program needs
# (SlowSetting's table warns of the others). An empty value of these variables slows nothing down either.
HARMLESS = {
    "CUDA_LAUNCH_BLOCKING": ("0",), "NCCL_DEBUG": ("VERSION", "WARN"), "NCCL_P2P_DISABLE": ("0",), "NCCL_SHM_DISABLE": ("0",),
    "NCCL_IB_DISABLE": ("0",), "NCCL_COLLNET_ENABLE": ("0",), "NCCL_GRAPH_REGISTER": ("0",),
    "NCCL_LAUNCH_ORDER_IMPLICIT": ("1",), "NCCL_IB_GID_INDEX": ("-1",), "PYTORCH_ALLOC_CONF": ("EXPANDABLE_SEGMENTS:TRUE",),
    "PYTORCH_CUDA_ALLOC_CONF": ("EXPANDABLE_SEGMENTS:TRUE",), "MALLOC_CHECK_": ("0",), "MALLOC_PERTURB_": ("0",),
    "ARGOSY_SYNCHRONOUS_SENDS": ("0",)}

DEGREES = {"tp": "tensor_parallel_degree", "pp": "pipeline_parallel_degree", "cp": "context_parallel_degree"}
REPLICAS, SHARDS = "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"


def is_harmless(name, value):
    return name in HARMLESS and value.upper() in ("", *HARMLESS[name])


def remedies():
    """{cause: remedy} of the table in WHY_SLOW.md."""
    page = (pathlib.Path(__file__).resolve().parent.parent / "WHY_SLOW.md").read_text()
    rows = re.findall(r"^\| ([^|]*) \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    return {cause: remedy.replace("`", "") for causes, remedy in rows for cause in causes.split(", ")}


@dataclasses.dataclass
class Variant:
    name: str
    cause: str  # in the table
    factor: str  # what is slow if this variant is faster
    options: list = dataclasses.field(default_factory=list)
    environment: list = dataclasses.field(default_factory=list)  # words of alternate.sh: NAME=VALUE, -NAME
    ranks: int = 0  # 0: those of the run
    profile: str = ""  # what PROFILE in the remedy stands for


class Job:
    """The run and its ranks. `fabric`: (profile, "with" or "without", NAME=VALUE, ...)."""

    def __init__(self, config, nodes, ranks_per_node, folder, fabric, environment):
        self.config, self.nodes, self.ranks_per_node = config, nodes, ranks_per_node
        self.folder, self.fabric, self.environment = pathlib.Path(folder), fabric, environment
        self.ranks = nodes * ranks_per_node
        self.degrees = {axis: int(config["parallelism." + key]) for axis, key in DEGREES.items()}
        self.model_ranks = self.degrees["tp"] * self.degrees["pp"] * self.degrees["cp"]
        self.data_ranks = self.ranks // self.model_ranks

    def mesh(self):
        """(replicas, shards); shards of -1 are resolved."""
        replicas = int(self.config[REPLICAS])
        shards = int(self.config[SHARDS])
        return replicas, shards if shards > 0 else self.data_ranks // replicas


def option_words(**settings):
    return [word for key, value in settings.items() for word in ("--" + key.replace("__", "."), str(value))]


def mesh_words(replicas, shards):
    return ["--" + REPLICAS, str(replicas), "--" + SHARDS, str(shards)]


def of_compile(job):
    on = job.config["compile.enable"] == "true"
    yield Variant("compile_off" if on else "compile_on", "compile", "the fused kernels and graphs of compile.enable, which are slower "
                  "here" if on else "separate kernels: compile.enable is off", option_words(compile__enable=str(not on).lower()))


def of_recompute(job):
    mode = job.config["activation_checkpoint.mode"]
    if mode == "none":
        yield "recompute_none", "nothing is recomputed already (activation_checkpoint.mode = none)"
    for less in {"full": ("none", "selective"), "selective": ("none",)}.get(mode, ()):
        yield Variant(f"recompute_{less}", "recomputation", f"recomputation: activation_checkpoint.mode is {mode}",
                      option_words(activation_checkpoint__mode=less))


def of_mesh(job):
    """The three ways to split the data-parallel ranks; the run's own is left out."""
    own, inside = job.mesh(), job.ranks_per_node // (job.degrees["tp"] * job.degrees["cp"])
    meshes = {"fsdp": (1, job.data_ranks), "ddp": (job.data_ranks, 1)}
    if job.nodes == 1:
        yield "hsdp", "one node: its ranks have no network between them, for which replicas are"
    elif inside < 2 or job.data_ranks % inside or job.data_ranks == inside:
        yield "hsdp", f"the {job.data_ranks} data-parallel ranks do not split into shards within a node and replicas"
    else:
        meshes["hsdp"] = (job.data_ranks // inside, inside)
    for name, mesh in meshes.items():
        if job.data_ranks == 1:
            yield name, "there is one data-parallel rank"
        elif mesh == own:
            yield name, f"the run has this mesh already ({mesh[0]} replicas of {mesh[1]} shards)"
        else:
            yield Variant(name, "mesh", f"the mesh: {name.upper()} is faster than {own[0]} replicas of {own[1]} shards", mesh_words(*mesh))


def of_fewer_ranks(job):
    """One node of several, or one rank of a node, with the same work for each rank: what communication costs."""
    name, ranks = ("one_node", job.ranks_per_node) if job.nodes > 1 else ("one_rank", 1)
    if job.ranks == 1:
        yield name, "the run has one rank"
        return
    if ranks % job.model_ranks:
        yield name, f"tensor, pipeline and context parallelism need {job.model_ranks} ranks"
        return
    left = ranks // job.model_ranks
    within = math.gcd(job.mesh()[1], left)
    words = mesh_words(left // within, within)
    batch = int(job.config["training.global_batch_size"])
    if batch > 0:
        words += option_words(training__global_batch_size=batch * left // job.data_ranks)
    between = "nodes" if job.nodes > 1 else "ranks"
    yield Variant(name, f"between {between}", f"communication between {between} (the link, or what {between} wait for)", words, ranks=ranks)


def of_variables(job):
    found = [name for name in (*DEBUG_VARIABLES, *OWN_VARIABLES) if job.environment.get(name)]
    if not found:
        yield "debug_variables", "none of the variables that slow runs down is set here"
    for name in found:
        if is_harmless(name, job.environment[name]):
            yield f"without_{name}", f"{name}={job.environment[name]} slows nothing down"
            continue
        yield Variant(f"without_{name}", "settings", f"the variable {name}={job.environment[name]}", environment=["-" + name])


def of_fabric(job):
    if job.nodes == 1:
        yield "fabric", "one node: nothing crosses the fabric"
        return
    for profile, how, *values in job.fabric:
        name = f"fabric_{how}_{profile}"
        if all(is_harmless(*value.split("=", 1)) for value in values):
            yield name, f"the profile {profile} {'changes' if values else 'sets'} nothing here"
        elif how == "with":
            yield Variant(name, "fabric with", f"the fabric without the profile {profile}", environment=values, profile=profile)
        else:
            yield Variant(name, "fabric without", f"the fabric's profile {profile}", profile=profile,
                          environment=["-" + value.partition("=")[0] for value in values])


def of_data(job):
    words = option_words(data__mixture="[]", training__dataset_path=job.folder / "tokens.h5", training__verify_dataset="false")
    source = job.config.get("training.dataset_path") or "data.mixture"
    yield Variant("small_data", "data", f"reading the data ({source})", words)


PARTS = (of_variables, of_compile, of_recompute, of_mesh, of_fewer_ranks, of_fabric, of_data)


def variants_of(job):
    """(variants, [(name, why it is left out)])."""
    found = [one for part in PARTS for one in part(job)]
    return [one for one in found if isinstance(one, Variant)], [one for one in found if not isinstance(one, Variant)]

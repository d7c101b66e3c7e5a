"""The experiments of why_slow.sh: each changes one thing of a run. An experiment that does not apply is left out with its
reason."""
import dataclasses
import math
import pathlib

# The variables of SlowSetting's table (lib/base/environment.cpp), which a run on GPUs warns of, and this program's own that are
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


@dataclasses.dataclass
class Variant:
    name: str
    factor: str  # what is slow if this variant is faster
    remedy: str  # the settings to type
    options: list = dataclasses.field(default_factory=list)
    environment: list = dataclasses.field(default_factory=list)  # words of alternate.sh: NAME=VALUE, -NAME
    ranks: int = 0  # 0: those of the run


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
    words = option_words(compile__enable=str(not on).lower())
    yield Variant("compile_off" if on else "compile_on", "the fused kernels and graphs of compile.enable, which are slower here"
                  if on else "separate kernels: compile.enable is off", " ".join(words), words)


def of_recompute(job):
    mode = job.config["activation_checkpoint.mode"]
    if mode == "none":
        yield "recompute_none", "nothing is recomputed already (activation_checkpoint.mode = none)"
    for less in {"full": ("none", "selective"), "selective": ("none",)}.get(mode, ()):
        words = option_words(activation_checkpoint__mode=less)
        yield Variant(f"recompute_{less}", f"recomputation: activation_checkpoint.mode is {mode}",
                      f"{' '.join(words)}, if the memory suffices (pretrain --plan)", words)


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
            words = mesh_words(*mesh)
            yield Variant(name, f"the mesh: {name.upper()} is faster than {own[0]} replicas of {own[1]} shards",
                          f"{' '.join(words)}, if the memory suffices (pretrain --plan)", words)


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
    remedy = "jobs/fabric_ab.sh --nodes N, then nccl-bench and preflight on these nodes" if job.nodes > 1 else \
        "nccl-bench and preflight on this node; see the other lines for a mesh that communicates less"
    yield Variant(name, f"communication between {between} (the link, or what {between} wait for)", remedy, words, ranks=ranks)


def of_variables(job):
    found = [name for name in (*DEBUG_VARIABLES, *OWN_VARIABLES) if job.environment.get(name)]
    if not found:
        yield "debug_variables", "none of the variables that slow runs down is set here"
    for name in found:
        if is_harmless(name, job.environment[name]):
            yield f"without_{name}", f"{name}={job.environment[name]} slows nothing down"
            continue
        yield Variant(f"without_{name}", f"the variable {name}={job.environment[name]}",
                      f"unset {name}, in the shell, in the site's settings and in modules", environment=["-" + name])


def of_fabric(job):
    if job.nodes == 1:
        yield "fabric", "one node: nothing crosses the fabric"
        return
    for profile, how, *values in job.fabric:
        names = [value.partition("=")[0] for value in values]
        name = f"fabric_{how}_{profile}"
        if all(is_harmless(*value.split("=", 1)) for value in values):
            yield name, f"the profile {profile} {'changes' if values else 'sets'} nothing here"
        elif how == "with":
            yield Variant(name, f"the fabric without the profile {profile}", f"ARGOSY_FABRIC_MORE={profile} in site.conf, if "
                          f"jobs/fabric_ab.sh --profile {profile} confirms it", environment=values)
        else:
            yield Variant(name, f"the fabric's profile {profile}", f"ARGOSY_FABRIC and ARGOSY_FABRIC_MORE in site.conf without "
                          f"{profile}", environment=["-" + one for one in names])


def of_data(job):
    words = option_words(data__mixture="[]", training__dataset_path=job.folder / "tokens.h5", training__verify_dataset="false")
    source = job.config.get("training.dataset_path") or "data.mixture"
    yield Variant("small_data", f"reading the data ({source})", "copy the token files to a local or faster disk, or fewer and "
                  "larger files; --training.verify_dataset false if it is the checksums", words)


PARTS = (of_variables, of_compile, of_recompute, of_mesh, of_fewer_ranks, of_fabric, of_data)


def variants_of(job):
    """(variants, [(name, why it is left out)])."""
    found = [one for part in PARTS for one in part(job)]
    return [one for one in found if isinstance(one, Variant)], [one for one in found if not isinstance(one, Variant)]

"""A Slurm of this machine's own: munged, slurmctld and several slurmd, in a temporary folder.

`main` starts the calling script once more in namespaces of its own. Whatever it starts there ends with it, however it
ends; its loopback's ports are nobody else's, so clusters side by side do not meet. Where that cannot be, it skips.
"""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

INSIDE = "ARGOSY_TEST_NAMESPACES"
PROBE = "probe"  # INSIDE's value where nothing but the set-up is tried
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
NODE_UNSHARE = ["unshare", "--mount", "--uts"]
NODE_SETUP = 'mount --bind "$1" "$2" && hostname "$3"'
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "unshare")
SYSTEM_PATH = os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin"])  # daemons' folders, which few PATHs have
START_SECONDS = 30
ADDRESS = "10.99.0.1"  # on the loopback interface of a namespace that has no other
# A node in Slurm's configuration: jobs share the cores of the machine, however many it has. A step that asks for fewer
# cores than the job has gets cores of the first socket.
SOCKETS, CORES_PER_SOCKET = 2, 16

# cred_expire: a requeued job waits that many seconds before it starts again (Slurm's default is 120). SlurmdTimeout:
# after that many seconds without an answer a node is down, and its jobs are requeued.
SLURM_CONF = """
ClusterName=argosy
SlurmctldHost={host}({address})
SlurmctldPort=6817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=8
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SlurmctldTimeout=60
SlurmdTimeout=30
MessageTimeout=60
KillWait=10
MinJobAge=3600
OverTimeLimit=0
SlurmctldDebug=info
SlurmdDebug=info
{nodes}
{partitions}
"""


def main():
    """What a script of tests ends with: inside namespaces unittest, else itself again inside."""
    os.environ["PATH"] += os.pathsep + SYSTEM_PATH
    if os.environ.get(INSIDE) == PROBE:
        try:
            own_devices()
            try_node()
        except (OSError, subprocess.SubprocessError) as error:
            sys.exit(str(error))
        sys.exit()
    if INSIDE in os.environ:
        own_devices()
        unittest.main(verbosity=2)
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    os.execvpe("unshare", [*UNSHARE, sys.executable, *sys.argv], os.environ | {INSIDE: "1"})


def why_not():
    if os.geteuid() != 0:
        return "the daemons of Slurm want root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)} missing); jobs/setup.sh --tests installs it"
    probe = subprocess.run([*UNSHARE, sys.executable, *sys.argv], env=os.environ | {INSIDE: PROBE}, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if probe.returncode:
        return f"this machine forbids a cluster of its own: {'; '.join(probe.stderr.splitlines())}"
    return None


def try_node():
    """The parts of a cluster's set-up that a container may forbid, without the daemons."""
    name_hosts([socket.gethostname()])
    with tempfile.TemporaryDirectory(prefix="argosy-slurm-") as folder:
        subprocess.run([*NODE_UNSHARE, "sh", "-c", NODE_SETUP, "-", folder, folder, "n1"], check=True)


def own_devices():
    """The network namespace, and a private shared memory in which killed ranks leave segments: both end with the
    namespaces."""
    loopback_up()
    subprocess.run(["mount", "-t", "tmpfs", "argosy", "/dev/shm"], check=True)


def loopback_up():
    """A new network namespace has its loopback interface down. It gets only the address ADDRESS: getaddrinfo needs one
    other than 127.0.0.1 to consider the network up, and with two addresses Open MPI would confuse them."""
    SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
        address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(any_socket, SIOCSIFADDR, address)


def name_hosts(names):
    """Affects only this mount namespace, in which main called unshare."""
    with tempfile.NamedTemporaryFile("w", prefix="argosy-hosts-") as hosts:
        hosts.write("".join(f"{ADDRESS} {name}\n" for name in ["localhost", *names]))
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


class Cluster:
    """`partitions` maps names to lists of nodes. Owns its folder and its processes until `close`."""

    def __init__(self, partitions):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="argosy-slurm-"))
        self.nodes = [node for nodes in partitions.values() for node in nodes]
        self.disk = self.folder / "pmix"  # on a node, a folder of its own: pmix-NODE here
        self.daemons = {}
        try:
            self.configure(partitions)
            self.start_all()
        except BaseException:
            self.close()
            raise

    def configure(self, partitions):
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        for name in ("pmix", *(f"spool-{node}" for node in self.nodes)):
            (self.folder / name).mkdir()
        nodes = [f"NodeName={node} NodeHostname={node} NodeAddr={ADDRESS} Port={7000 + i} Sockets={SOCKETS} "
                 f"CoresPerSocket={CORES_PER_SOCKET} ThreadsPerCore=1 RealMemory=64000"
                 for i, node in enumerate(self.nodes)]
        parts = [f"PartitionName={name} Nodes={','.join(nodes)} Default={'NO' if i else 'YES'} MaxTime=INFINITE "
                 "State=UP OverSubscribe=NO" for i, (name, nodes) in enumerate(partitions.items())]
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(
            folder=self.folder, host=socket.gethostname(), address=ADDRESS,
            nodes="\n".join(nodes), partitions="\n".join(parts)))
        (self.folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self.folder}/pmix\n")
        name_hosts([socket.gethostname(), *self.nodes])
        os.environ["SLURM_CONF"] = str(self.folder / "slurm.conf")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def start_all(self):
        f = self.folder
        self.start("munged", "munged", "--foreground", "--force", "--num-threads=2", f"--key-file={f}/munge.key",
                   f"--socket={f}/munge.socket", f"--pid-file={f}/munged.pid", f"--log-file={f}/munged.log",
                   f"--seed-file={f}/munge.seed")
        self.wait_until(lambda: (f / "munge.socket").exists(), "munged's socket")
        self.start("slurmctld", "slurmctld", "-D", "-f", f"{f}/slurm.conf")
        for node in self.nodes:
            self.start_node(node)
        self.wait_until(lambda: all(state.startswith("idle") for state in self.node_states().values()), "idle nodes")

    def start_node(self, node):
        """Each slurmd runs in its own mount namespace, with its own PMIx folder, whose sockets would otherwise collide,
        and its own host name."""
        own = self.folder / f"pmix-{node}"
        own.mkdir(exist_ok=True)
        inner = NODE_SETUP + ' && exec slurmd -D -N "$3" -f "$4"'
        self.start(node, *NODE_UNSHARE, "sh", "-c", inner, "-", str(own), f"{self.folder}/pmix", node,
                   f"{self.folder}/slurm.conf")

    def start(self, name, *command):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name):
        """Kills the node as a power failure would, without any shutdown."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def power_off(self, node):
        """Kills all processes of the node: its slurmd, the slurmstepd of its steps, and their ranks."""
        for pid in processes_of_same_host(self.daemons[node].pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.daemons[node].wait()

    def run(self, *command, check=True, timeout=60, **more):
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout, **more)
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def node_states(self):
        answer = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False).stdout
        states = dict(line.split() for line in answer.splitlines() if len(line.split()) == 2)
        return {node: states.get(node, "unknown") for node in self.nodes}

    def job(self, number):
        """scontrol's fields of a job: {"JobState": "RUNNING", ...}; asks again if a slow daemon does not answer."""
        for is_last in (False, False, False, True):
            done = self.run("scontrol", "show", "job", "-o", number, check=is_last, timeout=120)
            if done.returncode == 0:
                break
            time.sleep(1)
        answer = done.stdout
        return dict(word.split("=", 1) for word in answer.split() if "=" in word)

    def wait_for_job(self, number, limit, explain=lambda: ""):
        """Waits until the job has ended for good; returns its state and exit code. A requeued job has not ended."""
        def ended():
            job = self.job(number)
            state = job["JobState"]
            return (state, int(job["ExitCode"].split(":")[0])) if state in ENDED else None
        return self.wait_until(ended, f"the end of job {number}", limit, explain)

    def wait_until(self, condition, what, limit=START_SECONDS, explain=lambda: ""):
        """Waits for the first true value of `condition()` and returns it. `explain` gives the error text on a timeout.
        """
        deadline = time.monotonic() + limit
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come within {limit} s\n{explain() or self.logs()}")
            time.sleep(0.2)
        return value

    def logs(self):
        texts = []
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()
            texts += [f"--- {path.name}", *lines[-30:]]
        return "\n".join(texts)

    def close(self):
        """Ends the daemons in order, then the processes that they left (steps of killed nodes)."""
        for name in reversed(list(self.daemons)):
            daemon = self.daemons[name]
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
        for pid in others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}


def others():
    """All processes of this namespace except this one."""
    pids = [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if pid != os.getpid() and is_user_process(pid)]


def processes_of_same_host(pid):
    """The processes in the UTS namespace of this one: each slurmd has its own, and its children are in it."""
    host = os.readlink(f"/proc/{pid}/ns/uts")
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "ns" / "uts") == host:
                found.append(int(path.name))
    return found


def is_user_process(pid):
    try:
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def ranks_of(job, node=None):
    """{task: process} of pretrain in a job, on one node or on all; of several starts, the newest."""
    found = {}
    for path in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if (path / "comm").read_text().strip() != "pretrain":
                continue
            environ = dict(word.split("=", 1) for word in (path / "environ").read_text().split("\0") if "=" in word)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if environ.get("SLURM_JOB_ID") == str(job) and node in (None, environ.get("SLURMD_NODENAME")):
            found[int(environ.get("SLURM_PROCID", 0))] = int(path.name)
    return found

"""A machine with less software than this one: a folder that becomes the root of a mount namespace, in a network namespace
that has only the loopback interface. The folder is filled with this machine's C library, the libraries of its C++ compiler,
a shell, a few tools and Python; or a system was installed there (by debootstrap) together with its python3."""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

TOOLS = ("basename", "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "grep", "head", "id", "ldd", "ln", "ls",
         "mkdir", "mktemp", "mv", "nproc", "readlink", "realpath", "rm", "sed", "setsid", "sh", "sleep", "sort", "stat", "tail",
         "timeout", "tr", "true", "uname")
OF_THE_COMPILER = ("libstdc++.so.6", "libgcc_s.so.1")
OF_THE_C_LIBRARY = ("libanl.so.1", "libc.so.6", "libdl.so.2", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libresolv.so.2",
                    "librt.so.1", "libutil.so.1")
ENTER = """set -e
root=$1
shift
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
ip link set lo up
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"
"""


def why_impossible():
    """Why this user cannot enter such a machine, or None."""
    for tool in ("chroot", "ip", "mount", "unshare"):
        if not shutil.which(tool):
            return f"there is no {tool} here"
    tried = subprocess.run(["unshare", "--map-root-user", "--mount", "--net", "true"], capture_output=True)
    return None if tried.returncode == 0 else "this user may not make mount and network namespaces"


def libraries_of(path):
    """The files that the dynamic linker loads for a program or a library; none for a script."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    words = [line.partition("=>")[2].split() or line.split() for line in listed.splitlines()]
    return [pathlib.Path(one[0]) for one in words if one and one[0].startswith("/")]


class BareMachine:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.mounts = {folder: folder for folder in ("/dev", "/proc", "/sys")}  # {folder here: place there}

    def fill(self, program):
        """`program` is a C++ program of this machine."""
        for name in ("bin", "sbin", "lib", "lib64"):  # links into usr/ on most distributions
            if pathlib.Path("/", name).is_symlink():
                (self.root / name).symlink_to(os.readlink(f"/{name}"))
        for folder in ("usr/bin", "usr/lib", "usr/lib64", "etc", "tmp"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "etc/passwd").write_text("root:x:0:0:root:/tmp:/bin/sh\n")
        for tool in TOOLS:
            self.copy(shutil.which(tool), f"/usr/bin/{tool}")
        for library in libraries_of(program):
            if library.name in OF_THE_COMPILER:
                self.copy(library, library)
            if library.name == "libc.so.6":
                for other in OF_THE_C_LIBRARY:
                    self.copy(library.with_name(other), library.with_name(other))
        python, standard_modules = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
        self.copy(python, python)
        if python != "/usr/bin/python3":
            (self.root / "usr/bin/python3").symlink_to(python)
        self.mounts[standard_modules] = standard_modules
        for module in pathlib.Path(standard_modules, "lib-dynload").glob("*.so"):
            for library in libraries_of(module):
                self.copy(library, library)

    def copy(self, source, place):
        """Copies a program or a library, and the libraries that it loads."""
        target = self.root / str(place).lstrip("/")
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(source), target)
        for library in libraries_of(source):
            self.copy(library, library)

    def run(self, *command, limit=120, **variables):
        """The finished command, its output in one text."""
        mounts = [word for pair in self.mounts.items() for word in pair]
        settings = [f"{name}={value}" for name, value in variables.items()]
        return subprocess.run(["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", ENTER, "-", self.root, *mounts,
                               "--", *settings, *map(str, command)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)

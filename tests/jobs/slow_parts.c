// Planted slowness, by LD_PRELOAD:
//   SLOW_LINK=B     a link of B bytes a second: an operation of MPI that sends sleeps for its bytes before it starts
//   SLOW_FILE=NAME  and SLOW_READ=S: each read from a file of that name takes S seconds more
// A sleep takes no core, so other ranks compute undisturbed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void sleep_for(double seconds) {
    const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static double number_of(const char* variable) {
    const char* const text = getenv(variable);
    return text ? atof(text) : 0;
}

static void send_slowly(MPI_Comm comm, MPI_Datatype type, int count, int is_collective) {
    const double bytes_per_second = number_of("SLOW_LINK");
    if (bytes_per_second <= 0) return;
    int ranks = 1, size = 1;
    PMPI_Comm_size(comm, &ranks);
    PMPI_Type_size(type, &size);
    const double bytes = (double)size * count * (is_collective ? ranks - 1 : 1);
    sleep_for(bytes / bytes_per_second);
}

// Defines MPI_NAME, which sends slowly and then calls PMPI_NAME.
#define SLOW(name, is_collective, parameters, arguments) \
    int MPI_##name parameters {                          \
        send_slowly(comm, type, count, is_collective);   \
        return PMPI_##name arguments;                    \
    }

SLOW(Isend, 0, (const void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request),
     (buffer, count, type, peer, tag, comm, request))
SLOW(Issend, 0, (const void* buffer, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request),
     (buffer, count, type, peer, tag, comm, request))
SLOW(Iallgather, 1,
     (const void* in, int count, MPI_Datatype type, void* out, int out_count, MPI_Datatype out_type, MPI_Comm comm,
      MPI_Request* request),
     (in, count, type, out, out_count, out_type, comm, request))
SLOW(Ireduce_scatter_block, 1,
     (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
     (in, out, count, type, op, comm, request))
SLOW(Iallreduce, 1,
     (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
     (in, out, count, type, op, comm, request))

static void read_slowly(int file) {
    const char* const slow = getenv("SLOW_FILE");
    char link[64], path[4096];
    if (!slow) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return;
    path[size] = 0;
    const char* const name = strrchr(path, '/');
    if (name && strcmp(name + 1, slow) == 0) sleep_for(number_of("SLOW_READ"));
}

ssize_t pread64(int file, void* buffer, size_t size, off64_t offset) {
    static ssize_t (*real)(int, void*, size_t, off64_t);
    if (!real) real = (ssize_t(*)(int, void*, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    read_slowly(file);
    return real(file, buffer, size, offset);
}
ssize_t pread(int file, void* buffer, size_t size, off_t offset) { return pread64(file, buffer, size, offset); }

# One interface target foreign_<name> per foreign library, named in lib/LAYERS by the rooms that stand on it.

find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

add_library(foreign_mpi INTERFACE)
target_link_libraries(foreign_mpi INTERFACE MPI::MPI_CXX)
target_compile_definitions(foreign_mpi INTERFACE OMPI_SKIP_MPICXX)  # the C API alone; the C++ one is long gone

add_library(foreign_hdf5 INTERFACE)
target_include_directories(foreign_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
target_link_libraries(foreign_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

add_library(foreign_fmt INTERFACE)
target_link_libraries(foreign_fmt INTERFACE fmt::fmt)

add_library(foreign_spdlog INTERFACE)
target_link_libraries(foreign_spdlog INTERFACE spdlog::spdlog Threads::Threads)

add_library(foreign_json INTERFACE)
target_link_libraries(foreign_json INTERFACE nlohmann_json::nlohmann_json)

add_library(foreign_cli INTERFACE)
target_link_libraries(foreign_cli INTERFACE CLI11::CLI11)

add_library(foreign_toml INTERFACE)  # headers alone, without a CMake package on every distribution
find_path(ARGOSY_TOML_INCLUDE toml++/toml.h REQUIRED)
target_include_directories(foreign_toml SYSTEM INTERFACE ${ARGOSY_TOML_INCLUDE})

add_library(foreign_xxhash INTERFACE)  # as toml++: a header and a library, with no CMake package on Debian
find_path(ARGOSY_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(ARGOSY_XXHASH_LIBRARY xxhash REQUIRED)
target_include_directories(foreign_xxhash SYSTEM INTERFACE ${ARGOSY_XXHASH_INCLUDE})
target_link_libraries(foreign_xxhash INTERFACE ${ARGOSY_XXHASH_LIBRARY})

add_library(foreign_sentencepiece INTERFACE)  # as xxhash; its library for training is not needed
find_path(ARGOSY_SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(ARGOSY_SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
target_include_directories(foreign_sentencepiece SYSTEM INTERFACE ${ARGOSY_SENTENCEPIECE_INCLUDE})
target_link_libraries(foreign_sentencepiece INTERFACE ${ARGOSY_SENTENCEPIECE_LIBRARY})

find_package(ZLIB REQUIRED)
add_library(foreign_zlib INTERFACE)
target_link_libraries(foreign_zlib INTERFACE ZLIB::ZLIB)

add_library(foreign_zstd INTERFACE)  # as xxhash
find_path(ARGOSY_ZSTD_INCLUDE zstd.h REQUIRED)
find_library(ARGOSY_ZSTD_LIBRARY zstd REQUIRED)
target_include_directories(foreign_zstd SYSTEM INTERFACE ${ARGOSY_ZSTD_INCLUDE})
target_link_libraries(foreign_zstd INTERFACE ${ARGOSY_ZSTD_LIBRARY})

find_package(BZip2 REQUIRED)
add_library(foreign_bzip2 INTERFACE)
target_link_libraries(foreign_bzip2 INTERFACE BZip2::BZip2)

find_package(LibLZMA REQUIRED)
add_library(foreign_lzma INTERFACE)
target_link_libraries(foreign_lzma INTERFACE LibLZMA::LibLZMA)

# Arrow and its reader of Parquet, from the Python package pyarrow; without them `parquet` refuses its files. The wheel has
# no links with plain names to its libraries.
if(NOT ARGOSY_ARROW_DIR)
    file(GLOB wheel ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/pyarrow)
    set(ARGOSY_ARROW_DIR "${wheel}")
endif()
file(GLOB arrow_libraries ${ARGOSY_ARROW_DIR}/libarrow.so.* ${ARGOSY_ARROW_DIR}/libparquet.so.*)
list(LENGTH arrow_libraries num_arrow_libraries)
add_library(foreign_arrow INTERFACE)
if(ARGOSY_ARROW_DIR AND num_arrow_libraries EQUAL 2)
    set(ARGOSY_ARROW ON)
    target_include_directories(foreign_arrow SYSTEM INTERFACE ${ARGOSY_ARROW_DIR}/include)
    target_link_libraries(foreign_arrow INTERFACE ${arrow_libraries})
else()
    set(ARGOSY_ARROW OFF)
endif()

# LibTorch. Its own CMake package insists on a CUDA toolkit, so the two libraries are named here. Its include folder
# carries another fmt: -idirafter keeps <fmt/...> the system's.
if(NOT ARGOSY_TORCH_DIR)
    file(GLOB wheel ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
    set(ARGOSY_TORCH_DIR "${wheel}")
endif()
if(NOT EXISTS ${ARGOSY_TORCH_DIR}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "LibTorch is not at '${ARGOSY_TORCH_DIR}'. Run jobs/setup.sh, or set ARGOSY_TORCH_DIR.")
endif()
add_library(foreign_torch INTERFACE)
target_compile_options(foreign_torch INTERFACE
    "SHELL:-idirafter ${ARGOSY_TORCH_DIR}/include"
    "SHELL:-idirafter ${ARGOSY_TORCH_DIR}/include/torch/csrc/api/include")
# Without it ATen/TensorOperators.h and others pull in every operator: 11 s a file instead of 2.
target_compile_definitions(foreign_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(foreign_torch INTERFACE
    ${ARGOSY_TORCH_DIR}/lib/libtorch_cpu.so ${ARGOSY_TORCH_DIR}/lib/libc10.so)
# The OpenMP library that comes with LibTorch: with another one beside it there would be two sets of threads.
file(GLOB openmp_library ${ARGOSY_TORCH_DIR}/lib/libgomp*.so*)
if(NOT openmp_library)
    set(openmp_library -fopenmp)
endif()
target_link_libraries(foreign_torch INTERFACE ${openmp_library})

# The compiler of kernels for GPUs: of the wheels beside LibTorch, of those that jobs/setup.sh --tests fetches, or the
# machine's own. Without ARGOSY_CUDA only tests want it, and one that is too old counts as none.
get_filename_component(wheels ${ARGOSY_TORCH_DIR} DIRECTORY)
if(ARGOSY_NVCC AND NOT EXISTS ${ARGOSY_NVCC})
    unset(ARGOSY_NVCC CACHE)  # a wheel was there when it was looked for
endif()
find_program(ARGOSY_NVCC nvcc NO_DEFAULT_PATH PATH_SUFFIXES bin
             PATHS ${wheels}/nvidia/cu13 ${PROJECT_SOURCE_DIR}/.deps/tests/nvidia/cu13)
find_program(ARGOSY_NVCC nvcc PATHS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
set(nvcc_version "none")
if(ARGOSY_NVCC)
    execute_process(COMMAND ${ARGOSY_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" _ "${nvcc_version}")
    set(nvcc_version "${CMAKE_MATCH_1}")
endif()
if(NOT nvcc_version VERSION_GREATER_EQUAL 13.0)
    if(ARGOSY_CUDA)
        message(FATAL_ERROR "ARGOSY_CUDA=ON needs nvcc 13.0 or newer; found: '${ARGOSY_NVCC}' (${nvcc_version}). Load "
                            "the cluster's CUDA module (13.0), or set CUDA_HOME, or configure with ARGOSY_CUDA=OFF.")
    endif()
    set(ARGOSY_NVCC "")
endif()

# The GPU half of LibTorch registers itself when it is loaded and nothing calls it by name, hence --no-as-needed.
if(ARGOSY_CUDA)
    set(cuda_libraries ${ARGOSY_TORCH_DIR}/lib/libtorch_cuda.so ${ARGOSY_TORCH_DIR}/lib/libc10_cuda.so)
    foreach(library IN LISTS cuda_libraries)
        if(NOT EXISTS ${library})
            message(FATAL_ERROR "ARGOSY_CUDA=ON needs ${library}, which does not exist: '${ARGOSY_TORCH_DIR}' holds a "
                                "LibTorch for CPUs. Set ARGOSY_TORCH_DIR to one for CUDA 13.0.")
        endif()
    endforeach()
    # cuDNN compiles attention with NVRTC, which loads its built-in headers by name. They are found if they are already
    # loaded; the folder of a wheel is not among those that the dynamic linker searches.
    file(GLOB nvrtc_headers ${wheels}/nvidia/cu13/lib/libnvrtc-builtins.so.*)
    if(NOT nvrtc_headers)
        message(WARNING "No NVRTC in ${wheels}/nvidia/cu13/lib: attention by cuDNN works only if the dynamic linker finds "
                        "libnvrtc-builtins.so.")
    endif()
    list(APPEND cuda_libraries ${nvrtc_headers})
    set(cuda_libraries -Wl,--push-state,--no-as-needed ${cuda_libraries} -Wl,--pop-state)
    target_link_libraries(foreign_torch INTERFACE ${cuda_libraries})

    include(CheckCXXSourceCompiles)
    set(CMAKE_REQUIRED_LIBRARIES ${cuda_libraries})
    check_cxx_source_compiles("int main() {}" ARGOSY_TORCH_CUDA_LINKS)
    if(NOT ARGOSY_TORCH_CUDA_LINKS)
        unset(ARGOSY_TORCH_CUDA_LINKS CACHE)
        message(FATAL_ERROR "libtorch_cuda.so does not link: libraries that it stands on (cuDNN, NCCL, cuSPARSELt, "
                            "NVSHMEM, cuFile, cuBLAS, ...) are missing. Install the wheel with its dependencies: "
                            ".deps/venv/bin/pip install torch==2.11.0")
    endif()
    unset(CMAKE_REQUIRED_LIBRARIES)
endif()

# CUDA's runtime, NCCL, cuBLASLt, and cuDNN with the NVRTC that its frontend links. Those of the wheels come first, since
# LibTorch loads them. Where ARGOSY_CUDA is off the product needs none, and tests compile what wraps them where the headers
# are there.
set(cuda_parts CUDART_INCLUDE CUDART_LIBRARY NCCL_INCLUDE NCCL_LIBRARY CUBLAS_INCLUDE CUBLAS_LIBRARY
               CUDNN_INCLUDE CUDNN_LIBRARY CUDNN_FRONTEND_INCLUDE NVRTC_INCLUDE NVRTC_LIBRARY)
foreach(found IN LISTS cuda_parts)
    if(ARGOSY_${found} AND NOT EXISTS ${ARGOSY_${found}})
        unset(ARGOSY_${found} CACHE)  # a wheel was there when it was looked for
    endif()
endforeach()
set(nccl_wheels ${wheels}/nvidia/nccl)
set(cublas_wheels ${wheels}/nvidia/cu13)
if(NOT ARGOSY_CUDA)
    list(APPEND nccl_wheels ${PROJECT_SOURCE_DIR}/.deps/tests/nvidia/nccl)  # as jobs/setup.sh --tests puts it
    list(APPEND cublas_wheels ${PROJECT_SOURCE_DIR}/.deps/tests/nvidia/cu13)
endif()
find_path(ARGOSY_CUDART_INCLUDE cuda_runtime_api.h PATHS ${wheels}/nvidia/cu13 ENV CUDA_HOME /usr/local/cuda
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(ARGOSY_CUDART_LIBRARY NAMES libcudart.so.13 libcudart.so
          PATHS ${wheels}/nvidia/cu13 ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_path(ARGOSY_NCCL_INCLUDE nccl.h PATHS ${nccl_wheels} ENV NCCL_HOME ENV CUDA_HOME /usr
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(ARGOSY_NCCL_LIBRARY NAMES libnccl.so.2 libnccl.so PATHS ${nccl_wheels} ENV NCCL_HOME ENV CUDA_HOME /usr
          PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
find_path(ARGOSY_CUBLAS_INCLUDE cublasLt.h PATHS ${cublas_wheels} ENV CUDA_HOME /usr/local/cuda
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(ARGOSY_CUBLAS_LIBRARY NAMES libcublasLt.so.13 libcublasLt.so
          PATHS ${cublas_wheels} ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
find_path(ARGOSY_CUDNN_INCLUDE cudnn_graph.h PATHS ${wheels}/nvidia/cudnn ENV CUDNN_HOME ENV CUDA_HOME /usr
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(ARGOSY_CUDNN_LIBRARY libcudnn.so.9 PATHS ${wheels}/nvidia/cudnn ENV CUDNN_HOME ENV CUDA_HOME /usr
          PATH_SUFFIXES lib lib64 lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
file(GLOB own_wheels ${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages)
find_path(ARGOSY_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h PATHS ${own_wheels} ${wheels} ENV CUDNN_FRONTEND_HOME
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(ARGOSY_NVRTC_INCLUDE nvrtc.h PATHS ${wheels}/nvidia/cu13 ENV CUDA_HOME /usr/local/cuda
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(ARGOSY_NVRTC_LIBRARY NAMES libnvrtc.so.13 libnvrtc.so
          PATHS ${wheels}/nvidia/cu13 ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)

add_library(foreign_cuda INTERFACE)
add_library(foreign_cudnn INTERFACE)
add_library(foreign_nccl INTERFACE)
add_library(foreign_cublas INTERFACE)
if(ARGOSY_CUDA)
    foreach(part IN LISTS cuda_parts)
        if(NOT ARGOSY_${part})
            message(FATAL_ERROR "ARGOSY_CUDA=ON needs CUDA's runtime, NVRTC, NCCL, cuBLASLt, and cuDNN with its "
                                "frontend, and ARGOSY_${part} was not found in the wheels beside LibTorch, CUDA_HOME, "
                                "NCCL_HOME, CUDNN_HOME or CUDNN_FRONTEND_HOME. Run jobs/setup.sh, which installs the "
                                "frontend, and install LibTorch's wheel with its dependencies: "
                                ".deps/venv/bin/pip install torch==2.11.0")
        endif()
    endforeach()
    file(STRINGS ${ARGOSY_NCCL_INCLUDE}/nccl.h nccl_version REGEX "define NCCL_VERSION_CODE")
    string(REGEX MATCH "[0-9]+" nccl_version "${nccl_version}")
    if(NOT nccl_version GREATER_EQUAL 22800)
        message(FATAL_ERROR "${ARGOSY_NCCL_INCLUDE}/nccl.h is not that of NCCL 2.28 or newer, with which this program "
                            "compiles. Set NCCL_HOME to one, or ARGOSY_NCCL_INCLUDE and ARGOSY_NCCL_LIBRARY.")
    endif()
    target_include_directories(foreign_cuda SYSTEM INTERFACE ${ARGOSY_CUDART_INCLUDE})
    target_link_libraries(foreign_cuda INTERFACE ${ARGOSY_CUDART_LIBRARY})
    target_include_directories(foreign_nccl SYSTEM INTERFACE ${ARGOSY_NCCL_INCLUDE})
    target_link_libraries(foreign_nccl INTERFACE ${ARGOSY_NCCL_LIBRARY} foreign_cuda)
    target_include_directories(foreign_cublas SYSTEM INTERFACE ${ARGOSY_CUBLAS_INCLUDE})
    target_link_libraries(foreign_cublas INTERFACE ${ARGOSY_CUBLAS_LIBRARY} foreign_cuda)
    target_include_directories(foreign_cudnn SYSTEM INTERFACE
                               ${ARGOSY_CUDNN_INCLUDE} ${ARGOSY_CUDNN_FRONTEND_INCLUDE} ${ARGOSY_NVRTC_INCLUDE})
    target_link_libraries(foreign_cudnn INTERFACE ${ARGOSY_CUDNN_LIBRARY} ${ARGOSY_NVRTC_LIBRARY} foreign_cuda)
endif()

get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS targets)
    add_run_path(${target} INTERFACE ${target})
endforeach()

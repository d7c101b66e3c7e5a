# Compiles every .cu of cuda/ with nvcc, for each architecture of ARGOSY_CUDA_ARCHITECTURES, and for the last of them
# also to PTX, which later GPUs compile when the program starts. A build with CUDA puts the objects into argosy_kernels.
# A build without CUDA cannot run the kernels, but compiles and links them for the tests if it finds an nvcc. In both
# builds, a program that calls gpu_table() on real devices links argosy_gpu_kernels, named before argosy_kernels.
#
# The compiler may not contract a product and a sum into one operation (-fmad=false): it would choose where by what
# surrounds them, and then a fused kernel would not have the bits of the separate ones, nor a pack those of a single
# element. A kernel that wants a contraction calls fmaf(). Without contractions an element takes one or two instructions
# more, of 20 to 60 (counted in PTX), while memory leaves time for about six for each of its bytes (cuda/optimizer.cu).
#
# The file <kernel>.resources beside each object has the report of ptxas: registers, shared memory and spills.

set(ARGOSY_CUDA_ARCHITECTURES 90 100 CACHE STRING "Compute capabilities that kernels are compiled for: 90 is 9.0")

function(argosy_cuda_objects result)
    set(folder ${PROJECT_BINARY_DIR}/cuda_kernels)
    file(MAKE_DIRECTORY ${folder})
    set(targets)
    foreach(architecture IN LISTS ARGOSY_CUDA_ARCHITECTURES)
        list(APPEND targets -gencode=arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    list(GET ARGOSY_CUDA_ARCHITECTURES -1 newest)
    list(APPEND targets -gencode=arch=compute_${newest},code=compute_${newest})
    # If nvcc comes from a wheel, the runtime's headers are in another folder.
    set(includes ground platform numerics)
    list(TRANSFORM includes PREPEND -I${CMAKE_CURRENT_SOURCE_DIR}/)
    list(APPEND includes -isystem ${ARGOSY_CUDART_INCLUDE})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/numerics/kernels/cuda/*.cu)
    set(objects)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        set(object ${folder}/${name}.o)
        add_custom_command(OUTPUT ${object} BYPRODUCTS ${folder}/${name}.resources
            COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_SOURCE_DIR}/numerics/kernels/nvcc.cmake ${folder}/${name}.resources
                    ${ARGOSY_NVCC} -c -x cu ${source} -o ${object} -std=c++20 -O3 -fmad=false ${targets} ${includes}
                    -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler=-Wall,-Wextra,-ffp-contract=off -Xptxas=-v -MD -MF ${object}.d
            DEPENDS ${source} ${CMAKE_CURRENT_SOURCE_DIR}/numerics/kernels/nvcc.cmake
            DEPFILE ${object}.d COMMENT "Compiling ${name}.cu with nvcc" VERBATIM)
        list(APPEND objects ${object})
    endforeach()
    set(${result} ${objects} PARENT_SCOPE)
endfunction()

file(GLOB launchers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/numerics/kernels/cuda/*.cpp)
if(ARGOSY_CUDA)
    argosy_cuda_objects(objects)
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(argosy_kernels PRIVATE ${launchers} ${objects})
    add_library(argosy_gpu_kernels INTERFACE)
    target_link_libraries(argosy_gpu_kernels INTERFACE argosy_kernels)
elseif(ARGOSY_TESTS AND ARGOSY_NVCC AND ARGOSY_CUDART_INCLUDE AND ARGOSY_CUDART_LIBRARY)
    argosy_cuda_objects(objects)
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    file(GLOB wrappers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/platform/cuda/with_cuda/*.cpp)
    add_library(argosy_gpu_kernels STATIC ${launchers} ${objects} ${wrappers})
    target_include_directories(argosy_gpu_kernels PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/numerics)
    target_include_directories(argosy_gpu_kernels SYSTEM PRIVATE ${ARGOSY_CUDART_INCLUDE})
    target_link_libraries(argosy_gpu_kernels PUBLIC argosy_cuda ${ARGOSY_CUDART_LIBRARY})
    add_run_path(argosy_gpu_kernels INTERFACE ${ARGOSY_CUDART_LIBRARY})
endif()

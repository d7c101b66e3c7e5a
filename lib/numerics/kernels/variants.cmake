# Compiles every source of cpu/ once for each instruction set: argosy_kernels_variant(<name> VECTOR <header> [TILE <header>] FLAGS ...)
# adds the objects to argosy_kernels, in the namespace argosy::kernels::<name>; table.cpp here chooses one of them. TILE has
# the instruction set's own tiles; vectors of plain C++ have 8 lanes. Kernels are compiled without exceptions, because code that handles exceptions shares symbols with the rest of the program.

function(argosy_kernels_variant name)
    cmake_parse_arguments(variant "" "VECTOR;TILE" "FLAGS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/numerics/kernels/cpu/*.cpp)
    add_library(argosy_kernels_${name} OBJECT ${sources})
    target_include_directories(argosy_kernels_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ground ${CMAKE_CURRENT_SOURCE_DIR}/numerics)
    target_compile_options(argosy_kernels_${name} PRIVATE -O3 -fno-exceptions ${variant_FLAGS})
    target_compile_definitions(argosy_kernels_${name} PRIVATE
        ARGOSY_VARIANT=${name} ARGOSY_VECTOR_HEADER="kernels/cpu/${variant_VECTOR}" ARGOSY_VECTOR_LANES=8)
    if(variant_TILE)
        target_compile_definitions(argosy_kernels_${name} PRIVATE ARGOSY_TILE_HEADER="kernels/cpu/${variant_TILE}")
    endif()
    target_sources(argosy_kernels PRIVATE $<TARGET_OBJECTS:argosy_kernels_${name}>)
endfunction()

argosy_kernels_variant(portable VECTOR vector_portable.h FLAGS -Wno-psabi)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # GCC 12 warns of uninitialised values inside its own AVX-512 intrinsics.
    set(avx512_flags -march=x86-64-v4 -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized)
    # With detect_stack_use_after_return=1, GCC aligns vectors of 64 bytes on the stack to 32 bytes only.
    if(ARGOSY_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        list(APPEND avx512_flags --param asan-use-after-return=0)
    endif()
    argosy_kernels_variant(avx2 VECTOR vector_avx2.h FLAGS -march=x86-64-v3)
    argosy_kernels_variant(avx512 VECTOR vector_avx512.h FLAGS ${avx512_flags})
    argosy_kernels_variant(avx512_bf16 VECTOR vector_avx512.h TILE tile_avx512_bf16.h FLAGS ${avx512_flags} -mavx512bf16)
    argosy_kernels_variant(amx VECTOR vector_avx512.h TILE tile_amx.h FLAGS ${avx512_flags} -mavx512bf16 -mamx-tile -mamx-bf16)
    target_compile_definitions(argosy_kernels PRIVATE ARGOSY_KERNELS_X86)
endif()

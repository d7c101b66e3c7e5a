# What `cmake --install` puts beside the binaries, so that the prefix runs wherever it is moved.

# Of the libraries that the binaries load, LibTorch's travel along: those below the wheel's site-packages (or below
# the folder of a LibTorch that is no wheel). The distribution's, MPI and HDF5 among them, stay where they are.
get_filename_component(torch_home ${ARGOSY_TORCH_DIR} ABSOLUTE)
get_filename_component(torch_parent ${torch_home} DIRECTORY)
if(torch_parent MATCHES "/site-packages$")
    set(torch_home ${torch_parent})
endif()
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${torch_home} NORMALIZE is_inside)
set(anchor "^")
if(is_inside)  # a run path leads there through the binary's folder: .../build/bin/../../.deps/...
    file(RELATIVE_PATH torch_home ${PROJECT_SOURCE_DIR} ${torch_home})
    set(anchor "/")
endif()
string(REGEX REPLACE "([][+.*()^$?|\\\\])" "\\\\\\1" torch_home_regex "${torch_home}")
if(POLICY CMP0207)
    cmake_policy(SET CMP0207 NEW)  # where CMake resolves that first, it shall not warn of it
endif()
install(RUNTIME_DEPENDENCY_SET argosy_libraries
        POST_INCLUDE_REGEXES "${anchor}${torch_home_regex}/"
        POST_EXCLUDE_REGEXES "."
        LIBRARY DESTINATION lib)
# cuDNN loads its engines by name, and these load NVRTC.
if(ARGOSY_CUDA)
    file(GLOB loaded_by_name ${wheels}/nvidia/cudnn/lib/libcudnn_*.so.* ${wheels}/nvidia/cu13/lib/libnvrtc.so.*)
    install(FILES ${loaded_by_name} DESTINATION lib)
endif()

# Binaries find the libraries in lib/ from where they lie, and these find each other. The run paths of the wheels' libraries name
# folders that a prefix does not have, in which the dynamic loader would look first.
install(CODE "
    foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
        if(file MATCHES [[^(.*)/(bin|lib)/[^/]*$]] AND CMAKE_MATCH_1 STREQUAL CMAKE_INSTALL_PREFIX)
            set(run_path [[\$ORIGIN]])
            if(CMAKE_MATCH_2 STREQUAL bin)
                set(run_path [[\$ORIGIN/../lib]])
            endif()
            execute_process(COMMAND \"${CMAKE_READELF}\" -d \$ENV{DESTDIR}\${file} OUTPUT_VARIABLE dynamic)
            if(dynamic MATCHES [[\\((RPATH|RUNPATH)\\)]])
                file(RPATH_SET FILE \$ENV{DESTDIR}\${file} NEW_RPATH \"\${run_path}\")
            endif()
        endif()
    endforeach()
")

# jobs/setup.sh, build.sh and quickstart.sh build from a checkout, so they stay there.
install(DIRECTORY configs data jobs DESTINATION share/argosy USE_SOURCE_PERMISSIONS
        PATTERN setup.sh EXCLUDE PATTERN build.sh EXCLUDE PATTERN quickstart.sh EXCLUDE PATTERN __pycache__ EXCLUDE)

# bash finds the completion of a command by its name. A machine on which a binary cannot run goes without.
set(completions share/bash-completion/completions)
install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    file(MAKE_DIRECTORY \${prefix}/${completions})
    file(GLOB binaries \${prefix}/bin/*)
    foreach(binary IN LISTS binaries)
        get_filename_component(name \${binary} NAME)
        set(script \${prefix}/${completions}/\${name})
        execute_process(COMMAND \${binary} --bash-completion OUTPUT_FILE \${script} RESULT_VARIABLE code)
        if(NOT code EQUAL 0)
            file(REMOVE \${script})
            message(WARNING \"\${name} --bash-completion failed (\${code}): bash will not complete its options\")
        endif()
    endforeach()
")

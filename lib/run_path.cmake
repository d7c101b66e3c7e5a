# Run paths: the folders in which the dynamic loader looks for a program's libraries before the machine's own.
#
# The loader looks for every library that a program names in every folder of its run path, and every rank does so in a tree that all
# nodes share. CMake's own run path would also hold the folders of links to the machine's libraries, and would end with an empty element,
# which is the working folder. So CMake writes none, and each foreign library brings its folder to the programs that link it.
set(CMAKE_SKIP_RPATH ON)

# Sets `result` to the folders of the shared libraries that the item, a file or a target, stands on, without the machine's own.
function(find_library_folders result item)
    set(found)
    if(TARGET ${item})
        string(TOUPPER "LOCATION_${CMAKE_BUILD_TYPE}" location)  # the file that CMake links, whatever build types the package has
        foreach(property INTERFACE_LINK_LIBRARIES ${location})
            get_target_property(values ${item} ${property})
            foreach(value IN LISTS values)
                find_library_folders(more "${value}")
                list(APPEND found ${more})
            endforeach()
        endforeach()
    elseif(IS_ABSOLUTE "${item}" AND item MATCHES "\\.so[.0-9]*$")
        get_filename_component(file ${item} REALPATH)
        if(NOT file MATCHES "^/(usr/)?lib(32|64)?/")
            get_filename_component(found ${item} DIRECTORY)
        endif()
    endif()
    list(REMOVE_DUPLICATES found)
    set(${result} ${found} PARENT_SCOPE)
endfunction()

# add_run_path(<target> PUBLIC|PRIVATE|INTERFACE <item> ...): a program that links the target finds the libraries of the items. A folder
# within the project is relative to the program, so that a build tree runs wherever it is moved together with the project.
function(add_run_path target scope)
    foreach(item IN LISTS ARGN)
        find_library_folders(folders "${item}")
        foreach(folder IN LISTS folders)
            cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${folder} NORMALIZE is_inside)
            if(is_inside)
                set(folder "\$ORIGIN/$<PATH:RELATIVE_PATH,${folder},$<TARGET_PROPERTY:RUNTIME_OUTPUT_DIRECTORY>>")
            endif()
            # The slashes: `cmake --install` writes a short run path over this one, whose bytes must be enough and must not be the end
            # of a symbol's name too, which linkers store once.
            target_link_options(${target} ${scope} "LINKER:-rpath,${folder}////////")
        endforeach()
    endforeach()
endfunction()

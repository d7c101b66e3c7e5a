// The source of the target whose header the executables read precompiled (CMakeLists.txt).

// The source of the targets whose headers suites read precompiled (tests/CMakeLists.txt).

# Settings every room shares. Included by the top level, and by kernels/ when it builds alone.
include_guard(GLOBAL)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

find_program(SPAID_CCACHE ccache)
if(SPAID_CCACHE)
  # Paths below the source tree are relative to the cache: every clone on a machine shares its objects, and so does
  # ctest, which changes the language of messages. Comments count: a precompiled header serves only the headers that it
  # was made of, to the letter, and without this one of other comments is taken from the cache.
  get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${root} CCACHE_NOHASHDIR=1 CCACHE_COMMENTS=1
    CCACHE_SLOPPINESS=locale,pch_defines,time_macros ${SPAID_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

set(SPAID_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, comma-separated; empty: none")
if(SPAID_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SPAID_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${SPAID_SANITIZE})
endif()

# Up to a sixth of a compilation was g++ collecting its garbage in the 128 MiB that it allows itself.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=400000>)
endif()

option(SPAID_FUZZ "Make fuzzers of the targets in tests/fuzz (clang)" OFF)
if(SPAID_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

find_package(Threads REQUIRED)

# Warnings are errors in our code; generated code does not use this.
function(spaid_our_code target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror>)
  # What g++ guesses from the flow of optimised code is wrong in the standard library's own headers (12:
  # std::string's operator+, GCC bug 105651; destructors of temporaries; 13: std::vector of one), and a
  # view of a view is no dangling reference. AddressSanitizer finds the real ones.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(guesses -Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds)
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      list(APPEND guesses -Wno-dangling-reference -Wno-stringop-overread)
    endif()
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${guesses}>")
  endif()
endfunction()

# spaid_headers(NAME [EXECUTABLES] [DEPS target ...] HEADERS header ...): headers that a release compiles once for all
# libraries, or executables, that name them below. Most of a file's compilation is the reading of gRPC, protobuf and
# GoogleTest. Other builds read them in each file, which finds the includes that one lacks.
function(spaid_headers name)
  cmake_parse_arguments(ARG "EXECUTABLES" "" "DEPS;HEADERS" ${ARGN})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    return()
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Headers alone: see spaid_headers.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} Threads::Threads)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  spaid_our_code(${name})  # -Wpedantic decides on macros of the compiler
  if(ARG_EXECUTABLES)
    target_compile_options(${name} PRIVATE -fPIE)
  endif()
endfunction()

# Compiles the target's files with those headers.
function(spaid_use_headers target headers)
  if(TARGET "${headers}")
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# Leaves a benchmark out of the default build; the target `bench` builds them all.
function(spaid_bench_target target)
  if(NOT TARGET bench)
    add_custom_target(bench)
  endif()
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(bench ${target})
endfunction()

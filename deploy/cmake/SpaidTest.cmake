# spaid_add_test(NAME SOURCES a.cc ... [DEPS target ...] LABELS label ... [TIMEOUT seconds]
# [PREFIX text] [HEADERS headers]): one GoogleTest program in <build>/bin, its tests known to ctest one by one under the
# labels, with the prefix before their names: labels go by names, so that no two programs of a folder
# may have the same. A test that takes minutes gets its own program and a TIMEOUT. Tests run in
# <build>/tests-work, never in the source tree.
#
# spaid_add_test_runs(NAME PREFIX [FILTER filter] [ENVIRONMENT variable=value] LABELS label ...
# [TIMEOUT seconds]): the tests of that program once more, under another prefix: those that the
# filter lets pass, in that environment.
#
# spaid_skipped_test(NAME REASON LABELS label ...): stands for tests that cannot be built here, and says why.
include_guard(GLOBAL)
include(GoogleTest)

function(spaid_skipped_test name reason)
  cmake_parse_arguments(ARG "" "" "LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${reason}")
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" SKIP_REGULAR_EXPRESSION "skipped: ")
endfunction()

function(spaid_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PREFIX;HEADERS" "SOURCES;DEPS;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SOURCES OR NOT ARG_LABELS)
    message(FATAL_ERROR "spaid_add_test(${name}): wants SOURCES and LABELS; got: ${ARGN}")
  endif()
  # Imported targets live in one directory: each that adds tests looks them up.
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  spaid_our_code(${name})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS ${SPAID_TEST_HEADERS})
  endif()
  spaid_use_headers(${name} "${ARG_HEADERS}")
  spaid_add_test_runs(${name} "${ARG_PREFIX}" LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
endfunction()

function(spaid_add_test_runs name prefix)
  cmake_parse_arguments(ARG "" "TIMEOUT;FILTER;ENVIRONMENT" "LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)  # against hanging: a busy machine may take ten times as long
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT ${ARG_ENVIRONMENT})
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work)
  string(MAKE_C_IDENTIFIER "${name}_${prefix}discovered" found)
  gtest_discover_tests(${name}
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work
    DISCOVERY_TIMEOUT 60
    TEST_PREFIX "${prefix}"
    TEST_FILTER "${ARG_FILTER}"
    TEST_LIST ${found}
    PROPERTIES ${properties})
  # gtest_discover_tests splits a list of labels into properties: they are set after it, by ctest.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${found}_labels.cmake)
  file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT [=[
foreach(test IN LISTS @found@)
  set_tests_properties("${test}" PROPERTIES LABELS "@ARG_LABELS@")
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

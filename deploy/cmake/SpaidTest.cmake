# spaid_add_test(NAME SOURCES a.cc ... [DEPS target ...] LABELS label ...): one GoogleTest program in
# <build>/bin, its tests known to ctest one by one under the labels. A test that takes minutes gets
# its own program and a TIMEOUT. Tests run in <build>/tests-work, never in the source tree.
include_guard(GLOBAL)
include(GoogleTest)

function(spaid_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SOURCES OR NOT ARG_LABELS)
    message(FATAL_ERROR "spaid_add_test(${name}): wants SOURCES and LABELS; got: ${ARGN}")
  endif()
  # Imported targets live in one directory: each that adds tests looks them up.
  find_package(GTest REQUIRED)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)  # against hanging: a busy machine may take ten times as long
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  spaid_our_code(${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work)
  gtest_discover_tests(${name}
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work
    DISCOVERY_TIMEOUT 60
    TEST_LIST ${name}_discovered
    PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # gtest_discover_tests splits a list of labels into properties: they are set after it, by ctest.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT [=[
foreach(test IN LISTS @name@_discovered)
  set_tests_properties("${test}" PROPERTIES LABELS "@ARG_LABELS@")
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

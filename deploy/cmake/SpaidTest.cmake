# spaid_add_test(NAME SOURCES a.cc ... [DEPS target ...] LABELS label ...): one GoogleTest program in
# <build>/bin, its tests known to ctest one by one under the labels. A test that is slow by nature gets
# its own program and a TIMEOUT. Tests run in <build>/tests-work, never in the source tree.
include_guard(GLOBAL)
include(GoogleTest)
find_package(GTest REQUIRED)

function(spaid_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SOURCES OR NOT ARG_LABELS)
    message(FATAL_ERROR "spaid_add_test(${name}): wants SOURCES and LABELS; got: ${ARGN}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  spaid_our_code(${name})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work)
  # A list inside PROPERTIES would be split: the labels are set as one escaped word.
  string(REPLACE ";" "\\;" labels "${ARG_LABELS}")
  gtest_discover_tests(${name}
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests-work
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endfunction()

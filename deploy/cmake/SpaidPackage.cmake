# What `cmake --install` and CPack lay down. Three components, each a relocatable tree:
#
#   runtime  bin/{spaid,spaidctl,spaid-load}, lib/ with libspaid_cuda.so (where it was built) and every
#            shared library that a bare host lacks, libexec/spaid/{tests,bench} with the programs of both
#   cuda     CUDA's own shared libraries that libspaid_cuda.so needs, for hosts without a toolkit;
#            none while it links all of CUDA statically: then a text that says so
#   dev      headers, static libraries, find_package(spaid), pkg-config and the protos
#
# The C and C++ runtimes are the host's: glibc 2.36 or newer and the libstdc++ that goes with it.
include(CMakePackageConfigHelpers)

# All executables made below a folder of the source tree.
function(spaid_executables_below directory out)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  set(found)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
    if(type STREQUAL "EXECUTABLE" AND NOT excluded)
      list(APPEND found ${target})
    endif()
  endforeach()
  foreach(folder ${folders})
    spaid_executables_below(${folder} below)
    list(APPEND found ${below})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(spaid_programs spaid spaidctl spaid-load)
spaid_executables_below(${PROJECT_SOURCE_DIR} spaid_test_programs)
# Neither tests nor programs of a host: what compares and fits in a build tree; and, below, fuzz
# targets and what replaces the allocator.
list(REMOVE_ITEM spaid_test_programs ${spaid_programs} spaid_fsai_file spaid_dynamic_spai_times)
set(spaid_bench_programs ${spaid_test_programs})
list(FILTER spaid_bench_programs INCLUDE REGEX "_bench$")
list(FILTER spaid_test_programs EXCLUDE REGEX "_bench$|^fuzz_|_memory(_books)?_test$")

install(TARGETS ${spaid_programs} RUNTIME DESTINATION bin COMPONENT runtime)
foreach(kind test bench)
  if(spaid_${kind}_programs)
    set_target_properties(${spaid_${kind}_programs} PROPERTIES
      INSTALL_RPATH "$ORIGIN/../../../lib")
    string(REPLACE "test" "tests" folder ${kind})
    install(TARGETS ${spaid_${kind}_programs}
      RUNTIME DESTINATION libexec/spaid/${folder} COMPONENT runtime)
  endif()
endforeach()
install(FILES LICENSE README.md DESTINATION share/doc/spaid COMPONENT runtime)
install(DIRECTORY docs DESTINATION share/doc/spaid COMPONENT runtime FILES_MATCHING PATTERN "*.md")
install(FILES deploy/systemd/spaid.service DESTINATION share/spaid/systemd COMPONENT runtime)

set(spaid_binaries)
foreach(target ${spaid_programs} ${spaid_test_programs} ${spaid_bench_programs})
  list(APPEND spaid_binaries $<TARGET_FILE:${target}>)
endforeach()
set(spaid_cuda_binary "")
if(TARGET spaid_cuda)
  set_target_properties(spaid_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS spaid_cuda LIBRARY DESTINATION lib COMPONENT runtime)
  set(spaid_cuda_binary $<TARGET_FILE:spaid_cuda>)
  configure_file(deploy/cmake/cuda.txt.in ${PROJECT_BINARY_DIR}/cuda.txt @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cuda.txt DESTINATION share/doc/spaid COMPONENT cuda)
endif()

# The libraries are found when installing, as the loader of this machine finds them.
find_program(SPAID_PATCHELF patchelf)
install(CODE "
  set(binaries \"${spaid_binaries}\")
  set(cuda_binary \"${spaid_cuda_binary}\")
  set(patchelf \"${SPAID_PATCHELF}\")
  set(cuda_only OFF)
  include(\"${PROJECT_SOURCE_DIR}/deploy/cmake/InstallLibraries.cmake\")" COMPONENT runtime)
install(CODE "
  set(binaries \"\")
  set(cuda_binary \"${spaid_cuda_binary}\")
  set(patchelf \"${SPAID_PATCHELF}\")
  set(cuda_only ON)
  include(\"${PROJECT_SOURCE_DIR}/deploy/cmake/InstallLibraries.cmake\")" COMPONENT cuda)

# dev: the client library, static; whoever links it links this distribution's gRPC.
install(TARGETS spaid_client spaid_proto_grpc spaid_proto EXPORT spaidTargets
  ARCHIVE DESTINATION lib COMPONENT dev)
install(DIRECTORY client/cpp/spaid DESTINATION include COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(DIRECTORY proto/ DESTINATION share/spaid/proto COMPONENT dev
  FILES_MATCHING PATTERN "*.proto")
install(EXPORT spaidTargets NAMESPACE spaid:: DESTINATION lib/cmake/spaid COMPONENT dev)
configure_package_config_file(deploy/cmake/spaidConfig.cmake.in
  ${PROJECT_BINARY_DIR}/spaidConfig.cmake INSTALL_DESTINATION lib/cmake/spaid)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/spaidConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spaidConfig.cmake ${PROJECT_BINARY_DIR}/spaidConfigVersion.cmake
  DESTINATION lib/cmake/spaid COMPONENT dev)
configure_file(deploy/cmake/spaid-client.pc.in ${PROJECT_BINARY_DIR}/spaid-client.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spaid-client.pc DESTINATION lib/pkgconfig COMPONENT dev)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME spaid)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Sparse approximate inverse preconditioners and solvers, served")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime dev)
if(TARGET spaid_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
include(CPack)

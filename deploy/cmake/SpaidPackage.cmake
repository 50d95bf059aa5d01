# Lays down what `cmake --install` and CPack deliver, a component at a time, each a relocatable tree:
#
#   runtime  bin/{spaid,spaidctl,spaid-load}, their man pages, and lib/ with every shared library that a bare
#            host lacks
#   cuda     lib/libspaid_cuda.so, and CUDA's own shared libraries that it needs, for hosts without a
#            toolkit: none while it links all of CUDA statically; a text says so
#   tests    libexec/spaid/tests, to be run on the host
#   bench    libexec/spaid/bench (build the target `bench` before)
#   c        lib/libspaid.so.1 with every shared library that a bare host lacks, <spaid/spaid.h>, the
#            Fortran module's source, and pkg-config
#   python   share/spaid/python: the wheel of the Python client, where it was built
#   petsc    lib/petsc3.18-real/libspaidpetsc.so, of the PETSc that it was built with, and the messages that
#            such libraries share; goes over runtime, whose libraries it takes
#   mpi      lib/libspaid_mpi.so, for hosts with the PETSc and the MPI that it was built with; goes over runtime
#   dev      headers, static libraries, find_package(spaid), pkg-config and the protos
#
# tests and bench bring what else they need into lib/, and go over runtime. The C and C++ runtimes are
# the host's: glibc 2.36 or newer and the libstdc++ that goes with it.
include(CMakePackageConfigHelpers)
include(SpaidManPages)

# All executables made below a folder of the source tree.
function(spaid_executables_below directory out)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  set(found)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      list(APPEND found ${target})
    endif()
  endforeach()
  foreach(folder ${folders})
    spaid_executables_below(${folder} below)
    list(APPEND found ${below})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# spaid_install_libraries(COMPONENT PROGRAMS CUDA_BINARY CUDA_ONLY): the shared libraries that they need,
# found when installing, as the loader of this machine finds them.
find_program(SPAID_PATCHELF patchelf)
function(spaid_install_libraries component programs cuda_binary cuda_only)
  set(binaries)
  foreach(target ${programs})
    list(APPEND binaries $<TARGET_FILE:${target}>)
  endforeach()
  set(by_name)
  if(component MATCHES "^(tests|bench)$")
    set(by_name EXCLUDE_FROM_ALL)
  endif()
  install(CODE "
    set(binaries \"${binaries}\")
    set(cuda_binary \"${cuda_binary}\")
    set(patchelf \"${SPAID_PATCHELF}\")
    set(cuda_only ${cuda_only})
    include(\"${PROJECT_SOURCE_DIR}/deploy/cmake/InstallLibraries.cmake\")"
    COMPONENT ${component} ${by_name})
endfunction()

set(spaid_programs spaid spaidctl spaid-load)
spaid_executables_below(${PROJECT_SOURCE_DIR} spaid_others)
# Not for hosts: what compares and fits in a build tree, fuzz targets, what replaces the allocator, and what
# needs PETSc or MPI.
list(REMOVE_ITEM spaid_others ${spaid_programs})
set(spaid_bench_programs ${spaid_others})
list(FILTER spaid_bench_programs INCLUDE REGEX "_bench$")
set(spaid_tests_programs ${spaid_others})
list(FILTER spaid_tests_programs INCLUDE REGEX "_(test|daemon|before_main)$")
list(FILTER spaid_tests_programs EXCLUDE REGEX "_(memory|memory_books|petsc|mpi)_test$")

install(TARGETS ${spaid_programs} RUNTIME DESTINATION bin COMPONENT runtime)
spaid_install_libraries(runtime "${spaid_programs}" "" OFF)
spaid_man_pages(${spaid_programs})
foreach(kind tests bench)
  if(spaid_${kind}_programs)
    set_target_properties(${spaid_${kind}_programs} PROPERTIES
      INSTALL_RPATH "$ORIGIN/../../../lib")
    install(TARGETS ${spaid_${kind}_programs}
      RUNTIME DESTINATION libexec/spaid/${kind} COMPONENT ${kind} EXCLUDE_FROM_ALL)
    spaid_install_libraries(${kind} "${spaid_${kind}_programs}" "" OFF)
  endif()
endforeach()
install(FILES LICENSE README.md DESTINATION share/doc/spaid COMPONENT runtime)
install(DIRECTORY docs DESTINATION share/doc/spaid COMPONENT runtime FILES_MATCHING PATTERN "*.md")
install(FILES deploy/systemd/spaid.service DESTINATION share/spaid/systemd COMPONENT runtime)

if(TARGET spaid_cuda)
  set_target_properties(spaid_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS spaid_cuda LIBRARY DESTINATION lib COMPONENT cuda)
  spaid_install_libraries(cuda "" $<TARGET_FILE:spaid_cuda> OFF)
  spaid_install_libraries(cuda "" $<TARGET_FILE:spaid_cuda> ON)
  configure_file(deploy/cmake/cuda.txt.in ${PROJECT_BINARY_DIR}/cuda.txt @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cuda.txt DESTINATION share/doc/spaid COMPONENT cuda)
endif()

set_target_properties(spaid_c PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS spaid_c LIBRARY DESTINATION lib COMPONENT c)
spaid_install_libraries(c "" $<TARGET_FILE:spaid_c> OFF)
install(FILES client/c/spaid/spaid.h client/fortran/spaid.f90 DESTINATION include/spaid COMPONENT c)
configure_file(deploy/cmake/spaid.pc.in ${PROJECT_BINARY_DIR}/spaid.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spaid.pc DESTINATION lib/pkgconfig COMPONENT c)
if(TARGET spaid_petsc)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" petsc_version ${SPAID_PETSC_VERSION})
  set_target_properties(spaid_petsc PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS spaid_petsc LIBRARY DESTINATION lib/petsc${petsc_version}-real COMPONENT petsc)
  set_target_properties(spaid_messages PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS spaid_messages LIBRARY DESTINATION lib COMPONENT petsc)
endif()

if(TARGET spaid_mpi)
  set_target_properties(spaid_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS spaid_mpi LIBRARY DESTINATION lib COMPONENT mpi)
endif()

if(SPAID_PYTHON_WHEEL)
  install(FILES ${SPAID_PYTHON_WHEEL} DESTINATION share/spaid/python COMPONENT python)
endif()

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
set(CPACK_COMPONENTS_ALL runtime c dev)
foreach(kind tests bench)
  if(spaid_${kind}_programs)
    list(APPEND CPACK_COMPONENTS_ALL ${kind})
  endif()
endforeach()
if(SPAID_PYTHON_WHEEL)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
foreach(kind cuda petsc mpi)
  if(TARGET spaid_${kind})
    list(APPEND CPACK_COMPONENTS_ALL ${kind})
  endif()
endforeach()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
include(CPack)

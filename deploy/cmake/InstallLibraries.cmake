# Runs when installing: copies the shared libraries that `binaries` and `cuda_binary`, a library, need into
# <prefix>/lib, each with its rpath set to $ORIGIN, so that the tree finds them wherever it stands.
# Set by the caller: binaries, cuda_binary (or empty), patchelf, and cuda_only: ON copies CUDA's
# libraries only, OFF all others. Fails where a library cannot be found.

cmake_policy(VERSION 3.25)

# The kernel's, glibc's, the compiler's and the GPU driver's: always of the host.
set(host_libraries
  "^linux-vdso\\.so" "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util|anl|mvec)\\.so"
  "^lib(stdc\\+\\+|gcc_s)\\.so" "^libcuda\\.so" "^libnvidia-")
set(cuda_libraries "^lib(cudart|cublas|cublasLt|cusparse|cusolver|nvJitLink|nvrtc)[.-]")

if(NOT binaries AND NOT cuda_binary)
  return()
endif()
set(libraries)
if(cuda_binary)
  set(libraries LIBRARIES ${cuda_binary})
endif()
set(executables)
if(binaries)
  set(executables EXECUTABLES ${binaries})
endif()
file(GET_RUNTIME_DEPENDENCIES
  ${executables} ${libraries}
  RESOLVED_DEPENDENCIES_VAR resolved
  UNRESOLVED_DEPENDENCIES_VAR unresolved
  CONFLICTING_DEPENDENCIES_PREFIX conflicting
  PRE_EXCLUDE_REGEXES ${host_libraries} "^libspaid_cuda\\.so")
if(unresolved)
  message(FATAL_ERROR "shared libraries not found on this machine: ${unresolved}")
endif()
# The same library by two paths (/lib and /usr/lib are one folder): the first serves.
foreach(name ${conflicting_FILENAMES})
  list(GET conflicting_${name} 0 first)
  list(APPEND resolved ${first})
endforeach()
if(resolved AND NOT patchelf)
  message(FATAL_ERROR "patchelf is needed to install shared libraries (deploy/install-deps build)")
endif()

set(destination "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib")
foreach(library ${resolved})
  get_filename_component(name "${library}" NAME)
  set(of_cuda OFF)
  if(name MATCHES "${cuda_libraries}")
    set(of_cuda ON)
  endif()
  if(NOT of_cuda STREQUAL cuda_only)
    continue()
  endif()
  file(REAL_PATH "${library}" real)
  file(MAKE_DIRECTORY "${destination}")
  message(STATUS "Installing: ${destination}/${name}")
  file(COPY_FILE "${real}" "${destination}/${name}" ONLY_IF_DIFFERENT)
  file(CHMOD "${destination}/${name}" PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  execute_process(COMMAND ${patchelf} --set-rpath "$ORIGIN" "${destination}/${name}"
    RESULT_VARIABLE failed ERROR_VARIABLE why)
  if(failed)
    message(FATAL_ERROR "patchelf ${destination}/${name}: ${why}")
  endif()
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${CMAKE_INSTALL_PREFIX}/lib/${name}")
endforeach()

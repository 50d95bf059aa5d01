# CUDA is optional and found by itself. SPAID_CUDA=ON insists on it, OFF builds without.
include_guard(GLOBAL)
include(CheckLanguage)

if(NOT DEFINED SPAID_CUDA OR SPAID_CUDA)
  # A toolkit that is installed, but not on the PATH. check_language() has no other hint.
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(SPAID_NVCC nvcc HINTS /usr/local/cuda/bin)
    mark_as_advanced(SPAID_NVCC)
    if(SPAID_NVCC)
      set(ENV{CUDACXX} ${SPAID_NVCC})
    endif()
  endif()
  # Before the language is enabled: CMake's own default may name what a new nvcc no longer knows.
  # Where a GPU answers, what packages hold (preset `package`): A100 and H100 binaries, and PTX of the
  # latter for what comes after. Elsewhere the code only has to compile, and PTX takes half the time.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE no_gpu OUTPUT_QUIET ERROR_QUIET)
    if(no_gpu)
      set(architectures 90-virtual)
    else()
      set(architectures "80-real;90")
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "CUDA architectures to build for")
  endif()
  check_language(CUDA)
endif()

if(CMAKE_CUDA_COMPILER)
  set(spaid_cuda_default ON)
else()
  set(spaid_cuda_default OFF)
endif()
option(SPAID_CUDA "Build libspaid_cuda.so (default: where there is a CUDA compiler)"
       ${spaid_cuda_default})

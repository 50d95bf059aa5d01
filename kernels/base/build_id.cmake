# Writes OUTPUT: what programs and libspaid_cuda.so compare when they meet, of the headers and of what
# the two share, and of the compiler. Where it is the same they may pass the kernels' types to each other.
#   cmake -DFILES=...,... -DCOMPILER=... -DOUTPUT=... -P build_id.cmake
string(REPLACE "," ";" FILES "${FILES}")
set(all "${COMPILER}")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND all "\n${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUTPUT} "#pragma once\n\n#define SPAID_BUILD_ID \"${id}\"\n")

# Writes OUTPUT: kCudaBuildId, of the kernels' headers and the compiler. Two objects that have the same
# may pass the kernels' types to each other.
#   cmake -DHEADERS=...,... -DCOMPILER=... -DOUTPUT=... -P build_id.cmake
string(REPLACE "," ";" HEADERS "${HEADERS}")
set(all "${COMPILER}")
foreach(header ${HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND all "\n${hash}")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUTPUT}
  "#pragma once\n\nnamespace spaid::kernels {\ninline constexpr char kCudaBuildId[] = \"${id}\";\n}\n")

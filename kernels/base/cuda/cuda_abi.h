// The C interface between the programs and libspaid_cuda.so. Plain C types only: the two sides may
// be built by different compilers. Any change of this file raises kSpaidCudaAbiVersion.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum { kSpaidCudaAbiVersion = 1 };

struct SpaidCudaDevice {
  int32_t ordinal;
  int32_t compute_capability_major;
  int32_t compute_capability_minor;
  int64_t memory_bytes;  // total
  char name[256];        // NUL-terminated
  char uuid[48];         // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", NUL-terminated
};

enum SpaidCudaResult {
  kSpaidCudaOk = 0,
  kSpaidCudaNoDriver = 1,  // no driver, or one that is older than the runtime needs
  kSpaidCudaNoDevice = 2,
  kSpaidCudaError = 3,  // `message` has CUDA's own words
};

struct SpaidCudaInterface {
  uint32_t abi_version;  // kSpaidCudaAbiVersion of the library's build
  uint32_t struct_size;  // sizeof(SpaidCudaInterface) of the library's build
  // Writes at most `capacity` devices, their true number into `count`, CUDA versions as 1000 major
  // + 10 minor (driver_version 0: no driver), and on failure a text into `message`. Returns a
  // SpaidCudaResult. Thread-safe.
  int32_t (*list_devices)(struct SpaidCudaDevice* devices, int32_t capacity, int32_t* count,
                          int32_t* driver_version, int32_t* runtime_version, char* message,
                          size_t message_size);
};

// The one symbol of the library: SPAID_CUDA_ENTRY_POINT. The result lives as long as the library.
typedef const struct SpaidCudaInterface* (*SpaidCudaEntryPoint)(void);
#define SPAID_CUDA_ENTRY_POINT "spaid_cuda_interface"

}  // extern "C"

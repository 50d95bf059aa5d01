// Device listing, as cuda_abi.h declares it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/cuda/cuda_abi.h"

namespace spaid::cuda {

int32_t ListDevices(SpaidCudaDevice* devices, int32_t capacity, int32_t* count,
                    int32_t* driver_version, int32_t* runtime_version, char* message,
                    size_t message_size);

}  // namespace spaid::cuda

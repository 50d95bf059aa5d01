// What libspaid_cuda.so can do, as C++ classes that it implements: programs load it at run time and
// meet it through one function, kCudaEntryPoint. Both sides are of the same build, which the loader
// checks, so that they share the kernels' own types; nothing is thrown across.
//
// Objects are made by the library, and end by `delete` like others, before the context that they
// were made with. Objects of one context may be used by one thread at a time (CudaDevice has the
// lock); a backend is thread-safe.
//
// Errors of all members below, unless they say otherwise: RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY,
// of the context's limit or of the device; UNAVAILABLE/DEVICE_LOST, after which the device answers
// nothing more; INTERNAL/CUDA_ERROR, with CUDA's own words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

struct PatternView;  // kernels/sparse/matrix.h
class CudaMatrix;    // kernels/sparse/cuda_matrix.h
class CudaPattern;
class CudaLayout;  // kernels/krylov/cuda_layout.h

// Calls work(i) once for each i < count, on as many threads of the host as it likes: each i is
// begun after all lower ones have been. Returns when all have. `work` does not throw, and may wait
// for the work of lower i.
using CudaOnThreads =
    std::function<void(int64_t count, const std::function<void(int64_t i)>& work)>;

// Up to which sizes one variant of a kernel takes what the next one could take, too. What is over
// the first one's memory is the next one's, whatever these say. And which layouts are left out.
struct CudaVariants {
  // Find J: a column of a power by a warp, by the elements of its lists; else by a block. Of those
  // the ones are filled in by a bitmap of n bits in shared memory that has at most so many words
  // for each entry.
  int32_t union_warp_elements, union_bitmap_words;
  // Find I: the table of a local problem in the registers of a warp, in its shared memory, by the
  // entries of Â; else by a block.
  int32_t table_register_entries, table_warp_entries;
  // Gram matrix, factor, solve: a thread a local problem, by |J|; else a warp.
  int32_t lane_columns;
  // Operators whose entries take at most so many bytes by rows are laid out so, those of few
  // diagonals or of nodes, too; and of solves with such alone some iterations are one launch: on
  // the chip (kernels/krylov/cuda/persistent_smem.h), or in a grid that stays, where all of its
  // blocks fit at once.
  int64_t rows_bytes;
};

// A device with its stream and its memory.
class CudaContext {
 public:
  virtual ~CudaContext() = default;

  virtual int64_t used_bytes() const = 0;
  // An error came after which the device answers nothing: it stays so. Thread-safe.
  virtual bool lost() const = 0;
  // A small piece of work, waited for: a device that cannot even do that is lost. Full memory is no
  // error: the device answers.
  virtual Status Probe() = 0;
  // The median of some copies of `bytes` within the device's memory, in milliseconds by its clock;
  // takes twice as much of it meanwhile.
  virtual Result<double> TimeCopy(int64_t bytes) = 0;

  // A canonical square matrix. `values`: of its entries; empty: there is room for them all the same
  // (CudaMatrix::UploadValues).
  virtual Result<std::unique_ptr<CudaMatrix>> UploadMatrix(const PatternView& a,
                                                           std::span<const double> values) = 0;
  // Lower triangular by rows, each row's diagonal last: for builds of FSAI to come.
  virtual Result<std::unique_ptr<CudaPattern>> UploadPattern(const PatternView& rows) = 0;
  // y_i = d_i x_i.
  virtual Result<std::unique_ptr<CudaLayout>> LayOutDiagonal(std::span<const double> diagonal) = 0;
};

struct CudaListing {
  enum class Outcome {
    kDevices,
    kNoDriver,  // none, or one that is older than the runtime needs
    kNoDevice,
    kError,
  };
  Outcome outcome = Outcome::kDevices;
  std::string message;          // where there are no devices: CUDA's own words
  int32_t driver_version = 0;   // 1000 major + 10 minor; 0: no driver
  int32_t runtime_version = 0;  // the same
  std::vector<DeviceInfo> devices;
};

class CudaBackend {
 public:
  virtual ~CudaBackend() = default;

  virtual CudaListing ListDevices() = 0;
  // `memory_limit`: bytes that all objects of the context may take together; 0: the whole device.
  // `on_threads`: large arrays of the host on their way to or from the device are copied so; null:
  // by the driver's one thread. `variants`: null: as measured. An error has CUDA's words alone.
  virtual Result<std::unique_ptr<CudaContext>> OpenContext(const DeviceInfo& gpu,
                                                           int64_t memory_limit,
                                                           CudaOnThreads on_threads,
                                                           const CudaVariants* variants) = 0;
};

// What went wrong within the library.
enum class CudaFault { kError, kOutOfMemory, kDeviceLost, kPlanMismatch };
// The status of that on this device; INVALID_ARGUMENT/PLAN_MISMATCH where a matrix has not the
// pattern of what was made before.
Status CudaFailure(CudaFault fault, const DeviceInfo& gpu, const std::string& message);
// "NVIDIA H100 80GB HBM3 (gpu:0)": without its id, which is the operator's to know; errors go to
// whoever asked.
std::string CudaName(const DeviceInfo& gpu);

// The one symbol of the library: returns the id of its build (kCudaBuildId, build_id.h), and where
// `build_id` is the same sets *backend, which lives as long as the library.
using CudaEntryPoint = const char* (*)(const char* build_id, CudaBackend** backend);
inline constexpr char kCudaEntryPoint[] = "spaid_cuda_backend";

}  // namespace spaid::kernels

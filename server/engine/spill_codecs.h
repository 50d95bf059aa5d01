// How matrices and preconditioners are written to a spill folder, and read back.
//
// A matrix is its pattern, which matrices of one tenant share as a file, too, its values, and the
// wire's message about it. A preconditioner is its matrix, which may have the pattern of another
// one, a row scaling if it has one, and the wire's message. Its copy on a device is not kept, nor
// what solves with it have taken (FirstCounts): that is learned anew.
#pragma once

#include "server/engine/stored_types.h"
#include "server/store/spill_codec.h"

namespace spaid::server {

SpillCodec MatrixCodec();
SpillCodec PreconditionerCodec();

// The wire's message about what is in the folder alone.
v1::Matrix MatrixOf(const SpillRecord& record);
v1::Preconditioner PreconditionerOf(const SpillRecord& record);

}  // namespace spaid::server

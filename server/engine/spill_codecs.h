// How matrices and preconditioners are written to a spill folder, and read back.
//
// A matrix is its pattern, which matrices of one tenant share as a file, too, its values, and the
// wire's message about it. One that lies over the ranks alone is one file, which comes from them,
// and goes to them, on any number of ranks, piece by piece. Its M is not kept: it would have to lie
// as the rows of A do, which another number of ranks divides otherwise. A preconditioner is its
// matrix, which may have the pattern of another one, a row scaling if it has one, and the wire's
// message. Its copy on a device is not kept, nor what solves with it have taken (FirstCounts): that
// is learned anew.
#pragma once

#include <functional>
#include <string>

#include "server/engine/stored_types.h"
#include "server/store/spill_codec.h"

namespace spaid::server {

class EngineAdapter;  // adapter.h

// `adapter`: of the ranks; null: there are none. give_up(tenant): gives up a matrix there to make
// room (EngineAdapter::GiveUp). Both outlive the codec.
SpillCodec MatrixCodec(const EngineAdapter* adapter = nullptr,
                       std::function<bool(const std::string& tenant)> give_up = {});
SpillCodec PreconditionerCodec();

// The wire's message about what is in the folder alone.
v1::Matrix MatrixOf(const SpillRecord& record);
v1::Preconditioner PreconditionerOf(const SpillRecord& record);

}  // namespace spaid::server

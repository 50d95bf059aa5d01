// Compiled with another configuration of PETSC_USE_..., which client/petsc/petsc.h refuses.
#include "client/petsc/petsc.h"

#include "tests/kernels/dynamic_spai/helpers.h"

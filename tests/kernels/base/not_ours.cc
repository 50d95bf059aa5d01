// A shared library that loads, but has nothing to do with spaid.
extern "C" __attribute__((visibility("default"))) int some_other_symbol() { return 1; }

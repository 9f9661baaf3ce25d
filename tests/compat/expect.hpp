// For programs that make the calls of a document: ends with 1 and says where, if something is not as expected.
#pragma once

#include <cstdio>
#include <cstdlib>

#define EXPECT_THAT(condition)                                                             \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

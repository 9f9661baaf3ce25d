// Prints a synthetic trace, to look at the page of `kmm trace view`: write_synthetic_trace TASKS DEVICES > trace.json
#include <cstdio>
#include <cstdlib>

#include "synthetic_trace.hpp"

int main(int argc, char** argv) {
    const std::size_t num_tasks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 600;
    const std::size_t num_devices = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 2;
    if (num_tasks == 0 || num_devices == 0)
        return std::fputs("usage: write_synthetic_trace TASKS DEVICES\n", stderr), 2;
    return std::fputs(synthetic_trace(num_tasks, num_devices).c_str(), stdout) < 0 ? 1 : 0;
}

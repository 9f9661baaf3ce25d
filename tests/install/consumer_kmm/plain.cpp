// A plain C++17 program of a user: the umbrella header alone, and nothing heavy behind it.
#include "kmm/kmm.hpp"

#if defined(FMT_VERSION) || defined(SPDLOG_VERSION) || defined(CUDART_VERSION)
#error "kmm/kmm.hpp brings fmt, spdlog or CUDA into a plain C++ file"
#endif
#if defined(_GLIBCXX_IOSTREAM) || defined(_GLIBCXX_THREAD)
#error "kmm/kmm.hpp includes <iostream> or <thread>"
#endif

#include <vector>

int main() {
    auto runtime = kmm::make_runtime();
    auto numbers = runtime.allocate(std::vector<int>{1, 2, 3});
    return numbers.copy_to_vector() == std::vector<int>{1, 2, 3} ? 0 : 1;
}

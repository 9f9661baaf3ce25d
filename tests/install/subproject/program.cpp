#include <vector>

#include "kmm/kmm.hpp"

int main() {
    const kmm::RuntimeHandle rt = kmm::make_runtime();
    return rt.allocate(std::vector<int>{1, 2}).copy_to_vector()[1] == 2 ? 0 : 1;
}

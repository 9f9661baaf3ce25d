// Canary for AddressSanitizer: writes one element behind a heap block. One thread.
#include <cstddef>
#include <cstdlib>

int main() {
    // Volatile, so that the compiler knows neither size nor index and the access is left to AddressSanitizer.
    volatile std::size_t count = 8;
    int* block = static_cast<int*>(std::malloc(count * sizeof(int)));
    if (block == nullptr) return 2;
    block[count] = 1;
    const int result = block[0];
    std::free(block);
    return result == 1 ? 1 : 0;
}

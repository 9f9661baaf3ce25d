// Canary for LeakSanitizer: forgets a heap block. One thread.
#include <cstdlib>

namespace {

// Not inlined: no register of main keeps the address alive.
__attribute__((noinline)) void forget() {
    void* volatile block = std::malloc(64);
    block = nullptr;
}

}  // namespace

int main() {
    forget();
    return 0;
}

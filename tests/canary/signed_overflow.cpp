// Canary for UndefinedBehaviorSanitizer: adds one to the largest int. One thread.
#include <limits>

int main(int argc, char**) {
    volatile int largest = std::numeric_limits<int>::max();
    volatile int sum = largest + argc;
    return sum == 0 ? 1 : 0;
}

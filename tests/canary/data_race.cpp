// Canary for ThreadSanitizer: two threads increment a counter without order.
#include <thread>

namespace {

int counter = 0;

void increment() {
    for (int i = 0; i < 1000; ++i) ++counter;
}

}  // namespace

int main() {
    std::thread first(increment);
    std::thread second(increment);
    first.join();
    second.join();
    return counter == 0 ? 1 : 0;
}

// Waiting until another thread waits: for tests of what happens to who waits.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

namespace kmm::test {

/// The number of a thread, which says it before it goes to sleep in what it is there for.
class Sleepyhead {
  public:
    /// On that thread.
    void here() { number_.store(static_cast<int>(syscall(SYS_gettid))); }

    /// Returns when the system says that the thread sleeps, or is gone.
    void wait_until_asleep() const {
        int number = 0;
        while ((number = number_.load()) == 0) (void)sched_yield();
        const std::string file = "/proc/self/task/" + std::to_string(number) + "/stat";
        for (;;) {
            std::ifstream in(file);
            if (!in) return;
            std::string line;
            std::getline(in, line);
            const std::size_t end = line.rfind(") ");  // of the thread's name; its state comes next
            if (end != std::string::npos && line.compare(end, 3, ") S") == 0) return;
            (void)sched_yield();
        }
    }

  private:
    std::atomic<int> number_{0};
};

}  // namespace kmm::test

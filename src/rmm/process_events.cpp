// Implements process_events.hpp.
#include "rmm/process_events.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

thread_local int number_of_this_thread = 0;

struct all_observers {
    std::mutex mutex;  // held from before the fork to after it
    std::array<std::vector<process_observer*>, 3> places;

    template<class Visit>
    void each_forward(Visit visit) {
        for (auto& observers : places)
            for (std::size_t i = 0; i < observers.size(); ++i) visit(*observers[i]);
    }
    template<class Visit>
    void each_backward(Visit visit) {
        for (auto observers = places.rbegin(); observers != places.rend(); ++observers)
            for (std::size_t i = observers->size(); i-- > 0;) visit(*(*observers)[i]);
    }
};

all_observers& all();

void before_fork() {
    all().mutex.lock();
    all().each_forward([](process_observer& o) { o.before_fork(); });
}
void after_fork_in_parent() {
    all().each_backward([](process_observer& o) { o.after_fork(false); });
    all().mutex.unlock();
}
void after_fork_in_child() {
    number_of_this_thread = 0;
    all().each_backward([](process_observer& o) { o.after_fork(true); });
    all().mutex.unlock();
}
void at_exit() {
    const std::lock_guard lock(all().mutex);
    all().each_forward([](process_observer& o) { o.at_exit(); });
}

all_observers& all() {
    // Never destroyed: objects that outlive main() leave the list when they go.
    static all_observers& observers = *[] {
        auto* made = new all_observers;
        (void)pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
        (void)std::atexit(&at_exit);
        return made;
    }();
    return observers;
}

}  // namespace

void process_observer::enlist(place where) {
    const std::lock_guard lock(all().mutex);
    all().places[static_cast<std::size_t>(where)].push_back(this);
}

void process_observer::withdraw(place where) noexcept {
    const std::lock_guard lock(all().mutex);
    auto& observers = all().places[static_cast<std::size_t>(where)];
    observers.erase(std::remove(observers.begin(), observers.end(), this), observers.end());
}

int thread_id() noexcept {
    if (number_of_this_thread == 0) {
        (void)all();  // so that a fork resets it
        number_of_this_thread = static_cast<int>(syscall(SYS_gettid));
    }
    return number_of_this_thread;
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm

// Implements process_events.hpp.
#include "rmm/process_events.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "driver/locks.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

thread_local int number_of_this_thread = 0;

struct all_observers {
    kmm::locks::Mutex mutex;  // held from before the fork to after it
    std::array<std::vector<process_observer*>, 3> places KMM_GUARDED_BY(mutex);

    template<class Visit>
    void each_forward(Visit visit) KMM_REQUIRES(mutex) {
        for (auto& observers : places)
            for (std::size_t i = 0; i < observers.size(); ++i) visit(*observers[i]);
    }
    template<class Visit>
    void each_backward(Visit visit) KMM_REQUIRES(mutex) {
        for (auto observers = places.rbegin(); observers != places.rend(); ++observers)
            for (std::size_t i = observers->size(); i-- > 0;) visit(*(*observers)[i]);
    }
};

all_observers& all();

// Unchecked: what the first takes the others let go, in other calls of the system.
void before_fork() KMM_UNCHECKED_LOCKS {
    all().mutex.lock();
    all().each_forward([](process_observer& o) { o.before_fork(); });
}
void after_fork_in_parent() KMM_UNCHECKED_LOCKS {
    all().each_backward([](process_observer& o) { o.after_fork(false); });
    all().mutex.unlock();
}
void after_fork_in_child() KMM_UNCHECKED_LOCKS {
    number_of_this_thread = 0;
    all().each_backward([](process_observer& o) { o.after_fork(true); });
    all().mutex.unlock();
}
void at_exit() {
    all_observers& known = all();
    const kmm::locks::Guard lock(known.mutex);
    known.each_forward([](process_observer& o) { o.at_exit(); });
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
    all_observers& known = all();
    const kmm::locks::Guard lock(known.mutex);
    known.places[static_cast<std::size_t>(where)].push_back(this);
}

void process_observer::withdraw(place where) noexcept {
    all_observers& known = all();
    const kmm::locks::Guard lock(known.mutex);
    auto& observers = known.places[static_cast<std::size_t>(where)];
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

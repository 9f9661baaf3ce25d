// The defect: a member is used without the lock that guards it. -Wthread-safety must refuse to compile this.
#include "driver/locks.hpp"

struct Account {
    void pay(int more) { balance += more; }

    kmm::locks::Mutex mutex;
    int balance KMM_GUARDED_BY(mutex) = 0;
};

int main() { Account().pay(1); }

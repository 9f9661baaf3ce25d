// What threads of the program keep for their next submit, so that it can be given back from outside.
//
// Owns: the list of these. Must not know: what is kept. Any thread.
#pragma once

#include "driver/fork.hpp"
#include "driver/locks.hpp"

namespace kmm::detail {

/// Of one thread, from its first submit to its end.
class KeptBooks {
  public:
    KeptBooks(const KeptBooks&) = delete;
    KeptBooks& operator=(const KeptBooks&) = delete;
    /// Gives back what all threads keep and do not use just now. O(threads that have submitted).
    static void give_all_back() noexcept {
        if (driver::lost_in_fork()) return;  // the lock may be held for ever
        const locks::Guard guard(mutex_);
        for (KeptBooks* books = first_; books != nullptr; books = books->next_) books->give_back();
    }

  protected:
    KeptBooks() = default;
    ~KeptBooks() = default;
    /// When the object is complete: from now on other threads may call `give_back`. Once.
    void enter() noexcept {
        if (driver::lost_in_fork()) return;
        const locks::Guard guard(mutex_);
        next_ = first_;
        if (next_ != nullptr) next_->previous_ = this;
        first_ = this;
    }
    /// At the thread's end, before what it keeps is destroyed.
    void leave() noexcept {
        if (driver::lost_in_fork()) return;
        const locks::Guard guard(mutex_);
        (previous_ != nullptr ? previous_->next_ : first_) = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
    }
    /// Any thread, under the list's lock.
    virtual void give_back() noexcept = 0;

  private:
    static inline locks::Mutex mutex_;  // threads may end after statics are destroyed: its destructor does nothing
    static inline KeptBooks* first_ KMM_GUARDED_BY(mutex_) = nullptr;
    KeptBooks* previous_ KMM_GUARDED_BY(mutex_) = nullptr;
    KeptBooks* next_ KMM_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace kmm::detail

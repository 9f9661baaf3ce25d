// Owns: the queue of a stream (stream.hpp). Appending runs on users' threads, the rest on workers.
#include "driver/host/stream.hpp"

#include <chrono>
#include <thread>

namespace kmm::driver::host {
namespace {

// One slab is about 15 KiB: few allocations while a queue grows, little waste for a stream that is hardly used.
constexpr std::size_t ops_per_slab = 32;

// How long a thread looks before it sleeps: about what sleeping and waking cost.
constexpr std::chrono::microseconds spin_time{20};

}  // namespace

void Stream::add_slab() {
    if (slabs_.size() == slabs_.capacity()) slabs_.reserve(slabs_.size() * 2 + 4);
    slabs_.push_back(std::make_unique<Op[]>(ops_per_slab));
    Op* slab = slabs_.back().get();
    for (std::size_t i = ops_per_slab; i > 0; --i) {
        slab[i - 1].stream = this;
        unused(&slab[i - 1]);
    }
}

Op* Stream::new_op() {
    if (free_ == nullptr) add_slab();
    Op* op = free_;
    free_ = op->next;
    --num_free_;
    races::acquire(&op->enqueue_clock);
    op->blamed = nullptr;
    return op;
}

void Stream::reserve(std::size_t num_ops, std::uint32_t num_slots) {
    while (num_free_ < num_ops) add_slab();
    if (waited_.size() < num_slots) waited_.resize(num_slots, 0);
}

void Stream::unused(Op* op) noexcept {
    op->next = free_;
    free_ = op;
    ++num_free_;
}

std::uint64_t Stream::append(Op* op) noexcept {
    const std::uint64_t position = enqueued_.load(std::memory_order_relaxed) + 1;
    op->next = nullptr;
    op->position = position;
    races::release(&op->enqueue_clock);
    (pending_tail_ == nullptr ? pending_head_ : pending_tail_->next) = op;
    pending_tail_ = op;
    enqueued_.store(position, std::memory_order_release);
    return position;
}

void Stream::append_wait(Stream& target, std::uint64_t position) {
    if (&target == this || position == 0) return;
    // ThreadSanitizer must see the edge even if there is nothing left to wait for.
    if (!races::tracked && target.reached(position)) return;
    if (waited_.size() <= target.slot) waited_.resize(target.slot + 1, 0);
    if (waited_[target.slot] >= position) return;
    Op* op = new_op();
    op->work.set_wait(&target, position);
    append(op);
    waited_[target.slot] = position;
}

bool Stream::activate() noexcept {
    if (active_ || pending_head_ == nullptr) return false;
    active_ = true;
    return true;
}

bool Stream::destroy() noexcept {
    destroyed_ = true;
    if (active_) return false;
    destroyed_ = false;
    return true;
}

void Stream::set_failed(std::uint64_t position) noexcept {
    if (position < failed_at_) failed_at_ = position;
    may_have_failed.store(true, std::memory_order_release);
}

bool Stream::take_failure(std::uint64_t position) noexcept {
    if (failed_at_ > position) return false;
    failed_at_ = nobody;
    may_have_failed.store(false, std::memory_order_release);
    return true;
}

Op* Stream::front(bool* recycle) noexcept {
    *recycle = false;
    if (run_head_ != nullptr) return run_head_;
    const locks::Guard lock(mutex);
    while (done_ != nullptr) {
        Op* op = done_;
        done_ = op->next;
        unused(op);
    }
    run_head_ = pending_head_;
    pending_head_ = pending_tail_ = nullptr;
    if (run_head_ == nullptr) {
        active_ = false;
        *recycle = destroyed_;
        destroyed_ = false;
    }
    return run_head_;
}

void Stream::link(Waiter& waiter) noexcept {
    Waiter** at = &waiters_;
    while (*at != nullptr && (*at)->position <= waiter.position) at = &(*at)->next;
    waiter.next = *at;
    waiter.linked = true;
    *at = &waiter;
    update_first_waiter();
}

void Stream::unlink(Waiter& waiter) noexcept {
    if (!waiter.linked) return;
    Waiter** at = &waiters_;
    while (*at != &waiter) at = &(*at)->next;
    *at = waiter.next;
    waiter.linked = false;
    update_first_waiter();
}

void Stream::update_first_waiter() noexcept {
    first_waiter_.store(waiters_ == nullptr ? nobody : waiters_->position, std::memory_order_seq_cst);
}

Waiter* Stream::take_waiters() noexcept {
    const locks::Guard lock(mutex);
    const std::uint64_t completed = completed_.load(std::memory_order_relaxed);
    Waiter* streams = nullptr;
    Waiter** tail = &streams;
    bool threads = false;
    while (waiters_ != nullptr && waiters_->position <= completed) {
        Waiter* waiter = waiters_;
        waiters_ = waiter->next;
        waiter->linked = false;
        waiter->next = nullptr;
        if (waiter->blocked == nullptr) {
            threads = true;
        } else {
            *tail = waiter;
            tail = &waiter->next;
        }
    }
    update_first_waiter();
    if (threads) progress_.notify_all();
    return streams;
}

bool Stream::pass(Stream& target, std::uint64_t position) noexcept {
    if (target.completed_.load(std::memory_order_acquire) >= position) return true;
    const locks::Guard lock(target.mutex);
    block_.position = position;
    block_.blocked = this;
    target.link(block_);
    // Either the target's worker sees the waiter, or this sees what the worker completed (both sequentially
    // consistent).
    if (target.completed_.load(std::memory_order_seq_cst) < position) return false;
    target.unlink(block_);
    return true;
}

void Stream::wait_until(std::uint64_t position, bool spin) {
    if (reached(position)) return;
    if (spin) {
        const auto end = std::chrono::steady_clock::now() + spin_time;
        while (std::chrono::steady_clock::now() < end) {
            if (reached(position)) return;
            std::this_thread::yield();
        }
    }
    Waiter waiter;
    waiter.position = position;
    {
        locks::Lock lock(mutex);
        link(waiter);
        while (completed_.load(std::memory_order_seq_cst) < position) progress_.wait(lock);
        unlink(waiter);
    }
    races::acquire(&clock_);
}

}  // namespace kmm::driver::host

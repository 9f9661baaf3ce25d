#include "kmm/runtime/turns.hpp"

#include "driver/format.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"

namespace kmm::detail {

using engine::Message;

namespace {

// Instructions go out after this number of messages, so that devices start while a long batch is being scheduled.
constexpr std::size_t messages_per_dispatch = 32;

// The scheduler's thread looks this often before it takes a turn, so that the thread that posted can take it: what
// follows from the message then needs no other core. A look takes some 50 ns.
constexpr int looks_before_turn = 8;

// Another thread wrote the record of the next message's task last. While the message before it is read it comes here,
// with a few accesses and edges.
constexpr std::size_t prefetched_list_bytes = 128;

/// Of `RuntimeConfig::watchdog`; of one that is off the default.
std::chrono::milliseconds watchdog_interval(const RuntimeConfig& config) noexcept {
    constexpr double shortest = 0.001;  // seconds
    const double longest = RuntimeConfig{}.watchdog;
    const double seconds = config.watchdog > 0 ? std::clamp(config.watchdog, shortest, longest) : longest;
    return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

schedule::SchedulerOptions options_for(const Platform& platform, const trace::Emitter& emitter) {
    schedule::SchedulerOptions options;
    options.num_devices = platform.num_devices();
    options.compute_lanes = static_cast<std::uint32_t>(platform.config().device_concurrent_streams);
    options.launcher_lanes = Engine::launchers_per_device;
    options.host_threads = static_cast<std::uint32_t>(platform.config().host_threads);
    options.threads_at_once = platform.threads_at_once();
    options.debug = platform.config().debug_mode;
    options.functions_touch_memory = platform.on_host_driver();
    options.trace = &emitter;
    return options;
}

}  // namespace

SchedulerTurns::SchedulerTurns(const Platform& platform, TaskBooks& books, FailureWords& words,
                               const ShortageWords& shortages, Engine& engine, const trace::Emitter& emitter)
    : platform_(platform),
      books_(books),
      words_(words),
      engine_(engine),
      failed_tasks_(engine.failed_tasks()),
      emitter_(emitter),
      outgoing_(platform, books, words, shortages, engine),
      scheduler_(std::make_unique<schedule::Scheduler>(outgoing_, books.table(), options_for(platform, emitter),
                                                       platform.limits_bytes())),
      look_times_(watchdog_interval(platform.config()), LookTimes::Clock::now()) {
    outgoing_.connect(*scheduler_);
}

void SchedulerTurns::start() {
    thread_ = std::thread([this] {
        const engine::RuntimeThread mark(platform_.runtime_mark());
        run();
    });
}

void SchedulerTurns::end() noexcept {
    // Every message (the release of the last array) has to be read.
    while (!message_queue_.empty() || baton_.is_taken()) {
        help();
        std::this_thread::yield();
    }
    stop_.store(true);
    sleeper_.wake();
    thread_.join();
}

void SchedulerTurns::run() {
    const std::chrono::milliseconds interval = watchdog_interval(platform_.config());
    const auto must_end_lost = [this] { return books_.is_lost() && !has_ended_lost_; };
    while (!stop_.load()) {
        help();
        if (must_end_lost()) end_lost();
        sleeper_.wait(
            [&] { return (!message_queue_.empty() && !baton_.is_taken()) || must_end_lost() || stop_.load(); },
            interval, looks_before_turn);
        if (const auto now = LookTimes::Clock::now(); look_times_.is_due(now) && !post_interval_passed())
            look_times_.taken(now);
    }
}

/// False: no task is unfinished, or there is no memory for the message.
bool SchedulerTurns::post_interval_passed() noexcept {
    if (books_.unfinished().count() == 0) return false;
    Message m;
    m.what = Message::What::interval_passed;
    try {
        message_queue_.push(std::move(m));
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void SchedulerTurns::hand_over_no_more() noexcept {
    take_baton();
    ends_ = true;
    let_go_of_baton();
}

// ---------------------------------------------------------------------------------------------------- turns

bool SchedulerTurns::take_turn() noexcept {
    if (message_queue_.empty() || !baton_.try_take()) return false;
    turn_or_lose();
    let_go_of_baton();
    return true;
}

// Log messages are made once the baton is free: their words ask the driver and the system.
void SchedulerTurns::let_go_of_baton() noexcept {
    const Outgoing::News news = outgoing_.take_news();
    baton_.let_go();
    if (!news.roots.empty()) [[unlikely]]
        log_news(news);
}

void SchedulerTurns::log_news(const Outgoing::News& news) const noexcept {
    try {
        for (const auto& root : news.roots) log::post(log::Level::error, text_of(words_.cause_of(*root)));
        if (news.more != 0)
            log::post(log::Level::error,
                      driver::format("{} more tasks of runtime {} found no memory; their events say which", news.more,
                                     platform_.number()));
    } catch (const std::exception&) {
        log::post(log::Level::error, "tasks found no memory, and there is none on the host to say more");
    }
}

// The queue is checked again after the baton was let go, so that a message posted meanwhile is not left in it.
void SchedulerTurns::help() noexcept {
    while (!message_queue_.empty())
        if (!take_turn()) return;
}

void SchedulerTurns::turn() {
    trace::Sink* const listener = emitter_.sink();
    const std::int64_t begin_ns = listener != nullptr ? trace::clock_ns() : 0;
    messages_.clear();
    message_queue_.take(messages_);
    if (books_.is_lost()) return;
    std::size_t handled = 0;
    const auto count = [&]() KMM_REQUIRES(baton_) {
        if (++handled % messages_per_dispatch == 0) schedule_more();
    };
    for (Message& m : messages_) {
        if (const Message* const following = &m + 1; following != messages_.data() + messages_.size())
            if (following->task != nullptr) following->task->prefetch(prefetched_list_bytes);
        if (m.what != Message::What::submit) {
            handle(m);
            count();
            continue;
        }
        scheduler_->foresee(*m.task);
        for (graph::Task *t = m.task, *next = nullptr; t != nullptr; t = next) {
            next = t->next_published;  // the record may be reused soon
            scheduler_->submit(*t);
            count();
        }
    }
    schedule_more();
    messages_.clear();
    for (memory::Owner* owner : scheduler_->freed_owners()) memory::DeleteOwner()(owner);
    scheduler_->freed_owners().clear();
    if (failed_tasks_.any() && scheduler_->idle()) failed_tasks_.clear();
    if (listener != nullptr) [[unlikely]]
        listener->note({.what = trace::What::turn, .begin_ns = begin_ns, .end_ns = trace::clock_ns()});
}

void SchedulerTurns::turn_or_lose() noexcept {
    try {
        turn();
    } catch (...) {
        // Books are kept in reserved memory, and nothing else throws here: that is used up too.
        lost();
    }
}

void SchedulerTurns::end_lost() noexcept {
    log::last_words(log::Level::critical, "the host has no memory for the books of a kmm runtime: its tasks fail");
    take_baton();  // of a turn that goes on nothing is handed out behind this
    engine_.stop();
    let_go_of_baton();
    engine_.wait_until_stopped();
    take_baton();
    books_.end_all();
    let_go_of_baton();
    has_ended_lost_ = true;
}

void SchedulerTurns::handle(Message& m) {
    switch (m.what) {
    case Message::What::submit: break;
    case Message::What::advance:
        if (m.error != nullptr) scheduler_->lane_failed(m.lane, m.position, m.error);
        scheduler_->advance(m.lane, m.position);
        engine_.device_advanced();
        break;
    case Message::What::launched:
        scheduler_->launched(*m.task, m.lane, m.position, m.error, m.finished);
        if (m.finished) engine_.device_advanced();
        break;
    case Message::What::host_done: scheduler_->host_done(*m.task, m.error); break;
    case Message::What::task_failed: scheduler_->task_failed(m.task_number, m.error); break;
    case Message::What::kernel_threw: scheduler_->kernel_threw(m.task_number, m.error); break;
    case Message::What::copy_failed: scheduler_->copy_failed(m.lane, m.position, m.error); break;
    case Message::What::grown:
        if (m.bytes == 0) outgoing_.refused(m.to);
        scheduler_->grown(m.to, m.address, m.bytes, m.sealed);
        break;
    case Message::What::awaited: scheduler_->awaited(m.to, m.address, m.bytes, m.sealed); break;
    case Message::What::interval_passed:
        scheduler_->interval_passed();
        look_times_.taken(LookTimes::Clock::now());
        break;
    case Message::What::bounce_came: scheduler_->bounce_came(m.address, m.bytes); break;
    case Message::What::measured: scheduler_->measured(m.kernel_times, m.duration_ns); break;
    case Message::What::given_again: scheduler_->given_again(m.to, m.address, m.bytes, m.sealed); break;
    case Message::What::release: scheduler_->release(*static_cast<memory::Array*>(m.object)); break;
    case Message::What::look: break;
    }
}

// ---------------------------------------------------------------------------------------------------- the program

void SchedulerTurns::publish(graph::Task& first) noexcept {
    try {
        message_queue_.push(first);
    } catch (const std::bad_alloc&) {
        lost();
    }
}

void SchedulerTurns::schedule_published(bool may_take_turn) {
    if (may_take_turn && take_turn() && message_queue_.empty()) return;
    sleeper_.wake();
}

void SchedulerTurns::release(memory::Array& array) noexcept {
    Message m;
    m.what = Message::What::release;
    m.object = &array;
    post(std::move(m));
    sleeper_.wake();
}

// ---------------------------------------------------------------------------------------------------- Mailbox

void SchedulerTurns::post(Message&& message) {
    try {
        message_queue_.push(std::move(message));
    } catch (const std::bad_alloc&) {
        lost();
    }
}

void SchedulerTurns::lost() noexcept {
    books_.lose();
    sleeper_.wake();
}

// Arrays that were released just now are read of first. Of a lost runtime nothing can be had.
graph::FenceSet SchedulerTurns::take_back_bounce() {
    const Turn turn(*this);
    read_everything();
    return books_.is_lost() ? graph::FenceSet() : scheduler_->residency().compaction().take_bounce();
}

bool SchedulerTurns::take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes,
                               graph::FenceSet* users) {
    const Turn turn(*this);
    read_everything();
    return !books_.is_lost() &&
           scheduler_->residency().space(memory).take_back(reinterpret_cast<std::uintptr_t>(address), bytes, users);
}

memory::Reclaimed SchedulerTurns::reclaim(memory::MemoryIndex memory, const std::vector<memory::AddressRange>& regions,
                                          std::size_t wanted_bytes, bool at_once) {
    memory::Reclaimed reclaimed;
    const Turn turn(*this);
    read_everything();
    if (books_.is_lost() || ends_) return reclaimed;
    struct Flush {
        SchedulerTurns& turns;
        ~Flush() KMM_UNCHECKED_LOCKS {
            try {
                turns.outgoing_.flush();
            } catch (const std::bad_alloc&) {
                turns.lost();  // copies stand in the books that no device gets
            }
        }
    } const copies_go_out{*this};
    reclaimed = scheduler_->residency().blocks().reclaim(memory, regions, wanted_bytes, at_once);
    outgoing_.refused(memory);
    return reclaimed;
}

}  // namespace kmm::detail

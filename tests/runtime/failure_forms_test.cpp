// Unusual failures: exceptions without a text, functions that end their thread, thousands of undelivered failures, and
// the other results of a task whose write-back fails.
#include "harness.hpp"

#include <pthread.h>

#include <mutex>

namespace {

class LogLines {
  public:
    LogLines() {
        kmm::set_log_handler(
            [](int, const char* text, void* user) {
                auto& self = *static_cast<LogLines*>(user);
                const std::lock_guard<std::mutex> guard(self.mutex_);
                self.lines_.emplace_back(text);
            },
            this);
    }
    ~LogLines() { kmm::set_log_handler(nullptr, nullptr); }
    LogLines(const LogLines&) = delete;
    LogLines& operator=(const LogLines&) = delete;
    std::size_t count_with(const std::string& text) {
        const std::lock_guard<std::mutex> guard(mutex_);
        return static_cast<std::size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
            return line.find(text) != std::string::npos;
        }));
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

struct WithoutText : std::exception {
    const char* what() const noexcept override { return nullptr; }
};

TEST(Row095, an_exception_whose_text_is_null_ends_in_a_task_error_that_says_so) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        auto a = rt.allocate(std::vector<int>{1, 2, 3});
        const EventId on_host = rt.submit(host(), Host([](kmm::ViewMut<int>) { throw WithoutText(); }), write(a));
        const EventId on_device = rt.submit(device(0), GPU([](kmm::DeviceResource&) { throw WithoutText(); }));
        for (const EventId event : {on_host, on_device}) {
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(says(*error, "its what() is null")) << error->what();
            EXPECT_THROW(std::rethrow_if_nested(*error), WithoutText);
        }
        EXPECT_THROW(a.copy_to_vector(), kmm::TaskError);
    });
}

TEST(Row095, a_function_that_ends_its_thread_fails_its_task_and_others_go_on_in_as_many_threads) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        struct Destroyed {
            std::shared_ptr<std::atomic<int>> count;
            ~Destroyed() { ++*count; }
        };
        constexpr int rounds = 20;  // more than there are threads
        auto destroyed = std::make_shared<std::atomic<int>>(0);
        auto a = rt.allocate(std::vector<int>{1, 2, 3});
        for (int i = 0; i < rounds; i++) {
            const EventId on_host = rt.submit(host(), Host([destroyed](kmm::ViewMut<int>) {
                                                          const Destroyed local{destroyed};
                                                          pthread_exit(nullptr);
                                                      }).named("leaver"),
                                              overwrite(a));
            const EventId on_device = rt.submit(device(0), GPU([destroyed](kmm::DeviceResource&) {
                                                    const Destroyed local{destroyed};
                                                    pthread_exit(nullptr);
                                                }));
            for (const EventId event : {on_host, on_device}) {
                const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
                ASSERT_NE(error, nullptr);
                EXPECT_TRUE(says(*error, "pthread_exit")) << error->what();
            }
            EXPECT_THROW(a.copy_to_vector(), kmm::TaskError);
        }
        EXPECT_EQ(destroyed->load(), 2 * rounds);
        // All four threads of the pool are needed for this, and both launchers.
        std::atomic<int> met{0};
        std::vector<EventId> events;
        for (int i = 0; i < 4; i++)
            events.push_back(rt.submit(host(), Host([&met] {
                                           ++met;
                                           met.notify_all();
                                           for (int seen = met.load(); seen < 4; seen = met.load()) met.wait(seen);
                                       })));
        for (const EventId event : events) rt.wait(event);
        rt.wait(rt.submit(device(0), GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<int> v) { d.fill(v, 7); }),
                          overwrite(a)));
        EXPECT_EQ(a.copy_to_vector(), (std::vector<int>{7, 7, 7}));
    });
}

TEST(Row095, a_function_that_ends_its_thread_inside_a_handler_of_an_exception_fails_its_task) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const EventId event = rt.submit(host(), Host([] {
                                            try {
                                                throw std::runtime_error("first");
                                            } catch (const std::runtime_error&) {
                                                pthread_exit(nullptr);
                                            }
                                        }));
        EXPECT_THROW(rt.wait(event), kmm::TaskError);
        rt.wait(rt.submit(host(), Host([] {})));
    });
}

TEST(Row099, of_very_many_undelivered_failures_twenty_are_told_when_the_runtime_ends_and_then_their_number) {
    LogLines log;
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        for (int i = 0; i < 57; i++) rt.submit(host(), Host([] { throw std::runtime_error("one of many"); }));
    }
    EXPECT_EQ(log.count_with("one of many"), 20u);
    EXPECT_EQ(log.count_with("37 more tasks of runtime"), 1u);
}

TEST(Row099, twenty_undelivered_failures_are_all_told) {
    LogLines log;
    {
        const RuntimeHandle rt = kmm::make_runtime(config_with(1));
        for (int i = 0; i < 20; i++) rt.submit(host(), Host([] { throw std::runtime_error("one of few"); }));
    }
    EXPECT_EQ(log.count_with("one of few"), 20u);
    EXPECT_EQ(log.count_with("more tasks of runtime"), 0u);
}

TEST(Row097, a_write_back_that_fails_poisons_its_region_and_not_what_the_task_wrote_in_place) {
    KMM_NEED_DEVICES(1);
    constexpr std::int64_t chunk = std::int64_t{1} << 20;  // of bytes: in no memory there is room for one
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = std::size_t{256} << 10;
    limit_host_memory(config, std::size_t{256} << 10);
    config.memory_wait = 0;
    const RuntimeHandle rt = kmm::make_runtime(config);
    auto across = rt.array<char>(2 * chunk, Dim<1>(chunk));
    auto in_place = rt.array<char>(100, Dim<1>(100));
    const EventId event = rt.parallel_submit(std::vector{chunk_of(host(), chunk - 50, 100)},
                                             Host([](kmm::SubviewMut<char> region, kmm::ViewMut<char> all) {
                                                 for (std::int64_t i = region.begin(); i < region.end(); i++)
                                                     region[i] = 1;
                                                 for (std::int64_t i = 0; i < 100; i++) all[i] = 2;
                                             }),
                                             overwrite(across[_x]), overwrite(in_place));
    const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
    ASSERT_NE(error, nullptr);
    EXPECT_TRUE(nests<kmm::OutOfMemory>(*error, "")) << error->what();
    EXPECT_EQ(in_place.copy_to_vector(), std::vector<char>(100, 2));
    std::vector<char> read(100, 7);
    EXPECT_THROW(across.copy_to(read.data(), Point<1>(chunk - 50), Dim<1>(100)), kmm::TaskError);
    EXPECT_EQ(read, std::vector<char>(100, 7));
}

TEST(Row021, a_write_over_an_empty_domain_binds_an_array_of_no_elements_and_no_other) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        Array<int> none{0}, some{10}, read_only{0};
        Array<float, 2> wide({0, 5});
        const EventId event = rt.parallel_submit(kmm::DomainDim(0), kmm::DomainDim(16),
                                                 Host([](kmm::Range<std::int64_t>, kmm::SubviewMut<int>,
                                                         kmm::SubviewMut<int>, kmm::SubviewMut<float, 2>) {}),
                                                 _x, write(none[_x]), overwrite(some[_x]), overwrite(wide[_x][_]));
        rt.wait(event);
        EXPECT_TRUE(none.has_instance());
        EXPECT_TRUE(wide.has_instance());
        none.fill(3);
        none.copy_from(std::vector<int>());
        EXPECT_TRUE(none.copy_to_vector().empty());
        EXPECT_EQ(&none.runtime(), &rt.worker());
        // No task has written an element: the next submit that writes it says what its chunks are.
        EXPECT_FALSE(some.has_instance());
        rt.parallel_submit(kmm::DomainDim(10), kmm::DomainDim(4), Host([](kmm::SubviewMut<int> v) {
                               for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = 5;
                           }),
                           overwrite(some[_x]));
        EXPECT_EQ(some.copy_to_vector(), std::vector<int>(10, 5));
        rt.parallel_submit(kmm::DomainDim(0), kmm::DomainDim(16), Host([](kmm::Subview<int>) {}), read_only[_x]);
        EXPECT_FALSE(read_only.has_instance());
        rt.synchronize();
    });
}

}  // namespace

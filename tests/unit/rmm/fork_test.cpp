// What a child of fork() can do. Every test runs in processes of its own, because whether a process has used a driver
// cannot be undone: `parent` stands for the program, `child` for what it forks.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/registry.hpp"
#include "forked.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/device_scalar.hpp"
#include "rmm/device_uvector.hpp"
#include "rmm/error.hpp"
#include "rmm/host_buffer.hpp"
#include "rmm/ledger.hpp"
#include "rmm/memory_report.hpp"
#include "rmm/memory_tag.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/debug_resource_adaptor.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/host/new_delete_resource.hpp"
#include "rmm/mr/host/pinned_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/reclaimer.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/prefetch.hpp"

namespace {

using kmm::test::in_child;
using kmm::test::said_on_stderr;
using base = rmm::mr::device_memory_resource;

constexpr std::size_t mib = std::size_t{1} << 20;

/// "" where `call` throws rmm::logic_error that names fork and spawn.
std::string refusal(const char* name, const std::function<void()>& call) {
    try {
        call();
    } catch (const rmm::logic_error& e) {
        const std::string text = e.what();
        if (text.find("fork") != text.npos && text.find("spawn") != text.npos) return "";
        return std::string(name) + " said only: " + text + "\n";
    } catch (const std::exception& e) {
        return std::string(name) + " threw something else: " + e.what() + "\n";
    }
    return std::string(name) + " was let through\n";
}

struct named_call {
    const char* name;
    std::function<void()> call;
};

/// Each call in a child of its own: what is not refused may hang.
std::string refusals(const std::vector<named_call>& calls) {
    std::string wrong;
    for (const named_call& c : calls) {
        const std::string how = in_child([&] { return refusal(c.name, c.call); }, 5);
        if (!how.empty()) wrong += std::string(c.name) + ": " + how + "\n";
    }
    return wrong;
}

class nobody final : public rmm::mr::reclaimer {
  public:
    std::size_t reclaim(std::size_t, rmm::cuda_stream_view) noexcept override { return 0; }
};

/// One of every resource, each with a block.
struct resources {
    rmm::mr::cuda_memory_resource cuda;
    std::ostringstream log;
    struct entry {
        const char* name;
        std::unique_ptr<base> resource;
        void* block = nullptr;
        void* large = nullptr;
    };
    std::vector<entry> all;

    template<typename R, typename... Args>
    void add(const char* name, Args&&... args) {
        all.push_back({name, std::make_unique<R>(std::forward<Args>(args)...)});
    }
    /// Of what not every device has.
    template<typename R, typename... Args>
    void add_where_there_is(const char* name, Args&&... args) {
        try {
            add<R>(name, std::forward<Args>(args)...);
        } catch (const rmm::logic_error&) {
            return;
        }
    }
    base* find(const std::string& name) {
        for (entry& e : all)
            if (e.name == name) return e.resource.get();
        return nullptr;
    }

    resources() {
        using namespace rmm::mr;
        add<cuda_memory_resource>("cuda");
        add<managed_memory_resource>("managed");
        add<pinned_host_memory_resource>("pinned_host");
        add<cuda_async_memory_resource>("cuda_async", mib);
        add_where_there_is<cuda_async_managed_memory_resource>("cuda_async_managed");
        add<pool_memory_resource<cuda_memory_resource>>("pool", &cuda, mib);
        add<pool_memory_resource<cuda_memory_resource>>("pool with arenas", &cuda, 70 * mib);
        add<arena_memory_resource<cuda_memory_resource>>("arena", &cuda,
                                                         16 * mib);  // room for 1 MiB of each thread in any order
        add<fixed_size_memory_resource<cuda_memory_resource>>("fixed_size", &cuda, mib, 4);
        add<binning_memory_resource<cuda_memory_resource>>("binning", &cuda, 10, 20);
        add<vmm_memory_resource>("vmm");
        add<pinned_pool_memory_resource>("pinned_pool", 4 * mib);
        add_where_there_is<system_memory_resource>("system");
        add_where_there_is<sam_headroom_memory_resource>("sam_headroom", mib);
        add<aligned_resource_adaptor<cuda_memory_resource>>("aligned", &cuda, std::size_t{4096});
        add<limiting_resource_adaptor<cuda_memory_resource>>("limiting", &cuda, 16 * mib);
        add<logging_resource_adaptor<cuda_memory_resource>>("logging", &cuda, log);
        add<statistics_resource_adaptor<cuda_memory_resource>>("statistics", &cuda);
        add<tracking_resource_adaptor<cuda_memory_resource>>("tracking", &cuda);
        add<thread_safe_resource_adaptor<cuda_memory_resource>>("thread_safe", &cuda);
        add<debug_resource_adaptor<cuda_memory_resource>>("debug", &cuda);
        add<prefetch_resource_adaptor<cuda_memory_resource>>("prefetch", &cuda);
        add<failure_callback_resource_adaptor<cuda_memory_resource>>(
            "failure_callback", &cuda, [](std::size_t, void*) { return false; }, nullptr);
    }

    void allocate() {
        for (entry& e : all) {
            e.block = e.resource->allocate(1000);
            e.large = e.resource->allocate(mib);
        }
    }
    void free() noexcept {
        for (entry& e : all) {
            e.resource->deallocate(e.block, 1000);
            e.resource->deallocate(e.large, mib);
        }
    }
};

/// Everything that a program may have when it forks.
struct belongings {
    resources of_each;
    rmm::cuda_stream stream{rmm::cuda_stream::flags::non_blocking};
    rmm::cuda_stream_pool streams{3};
    rmm::mr::pinned_memory_resource pinned;
    void* pinned_block = pinned.allocate(mib);
    rmm::device_buffer buffer{1000, stream.view()};
    rmm::device_uvector<int> vector{1000, stream.view(), of_each.find("pool")};
    rmm::device_scalar<int> scalar{7, stream.view()};
    rmm::host_buffer host{1000, stream.view()};
    nobody who;
    rmm::mr::reclaimer_registration registration{rmm::get_current_cuda_device(), 0, who};
    std::vector<int> elements = std::vector<int>(1000);

    bool is_free = false;

    ~belongings() { free(); }
    void free() noexcept {
        if (std::exchange(is_free, true)) return;
        of_each.free();
        pinned.deallocate(pinned_block, mib);
    }
    belongings() {
        of_each.allocate();
        // The driver's threads have come to rest: what forks beside busy ones is a test of its own.
        rmm::cuda_stream_default.synchronize();
        stream.synchronize();
    }

    /// All frees and destructors; nothing may be said.
    static std::string go_quietly(std::unique_ptr<belongings> all) {
        const std::string said = said_on_stderr([&] {
            all->stream.synchronize_no_throw();
            all->free();
            all.reset();
        });
        return said.empty() ? "" : "said: " + said;
    }
};

/// All ways in, but for allocating from the resources.
std::vector<named_call> ways_in(belongings& b) {
    using namespace rmm;
    return {
        {"cuda_stream", [] { cuda_stream s; }},
        {"cuda_stream::synchronize", [&b] { b.stream.synchronize(); }},
        {"cuda_stream_view::synchronize", [&b] { b.stream.view().synchronize(); }},
        {"default stream", [] { cuda_stream_default.synchronize(); }},
        {"per-thread stream", [] { cuda_stream_per_thread.synchronize(); }},
        {"cuda_stream_pool", [] { cuda_stream_pool pool(2); }},
        {"pooled stream", [&b] { b.streams.get_stream().synchronize(); }},
        {"device_buffer", [&b] { device_buffer d(1000, b.stream.view()); }},
        {"device_buffer of a pool", [&b] { device_buffer d(1000, b.stream.view(), b.of_each.find("pool")); }},
        {"device_buffer copy", [&b] { device_buffer d(b.buffer, b.stream.view()); }},
        {"device_buffer from the host", [&b] { device_buffer d(b.elements.data(), 400, b.stream.view()); }},
        {"device_buffer::resize", [&b] { b.buffer.resize(5000, b.stream.view()); }},
        {"device_uvector", [&b] { device_uvector<int> v(10, b.stream.view()); }},
        {"device_uvector::element", [&b] { (void)b.vector.element(3, b.stream.view()); }},
        {"device_uvector::set_element", [&b] { b.vector.set_element(3, 4, b.stream.view()); }},
        {"device_scalar", [&b] { device_scalar<int> s(b.stream.view()); }},
        {"device_scalar::value", [&b] { (void)b.scalar.value(b.stream.view()); }},
        {"device_scalar::set_value", [&b] { b.scalar.set_value_to_zero_async(b.stream.view()); }},
        {"host_buffer", [&b] { host_buffer h(1000, b.stream.view()); }},
        {"host_buffer::resize", [&b] { b.host.resize(9000, b.stream.view()); }},
        {"pinned_memory_resource", [&b] { (void)b.pinned.allocate(100); }},
        {"prefetch", [&b] { prefetch(b.buffer.data(), 100, cuda_device_id{0}, b.stream.view()); }},
        {"available_device_memory", [] { (void)available_device_memory(); }},
        {"cuda_set_device_raii", [] { cuda_set_device_raii set(cuda_device_id{0}); }},
        {"get_current_device_resource", [] { (void)mr::get_current_device_resource(); }},
        {"get_current_device_resource_ref", [] { (void)mr::get_current_device_resource_ref(); }},
        {"set_current_device_resource", [&b] { mr::set_current_device_resource(&b.of_each.cuda); }},
        {"set_per_device_resource", [&b] { mr::set_per_device_resource(cuda_device_id{0}, &b.of_each.cuda); }},
        {"memory_report", [] { (void)memory_report(cuda_device_id{0}); }},
        {"memory_snapshot", [] { (void)memory_snapshot(); }},
        {"a new pool", [&b] { mr::pool_memory_resource<mr::cuda_memory_resource> p(&b.of_each.cuda, mib); }},
        {"a new vmm", [] { mr::vmm_memory_resource p; }},
        {"a new cuda_async", [] { mr::cuda_async_memory_resource p; }},
        {"a new pinned_pool", [] { mr::pinned_pool_memory_resource p(mib); }},
        {"a new reclaimer", [&b] { mr::reclaimer_registration r(cuda_device_id{0}, 0, b.who); }},
        {"trim",
         [&b] { static_cast<mr::pool_memory_resource<mr::cuda_memory_resource>&>(*b.of_each.find("pool")).trim(); }},
        {"statistics",
         [&b] {
             (void)static_cast<mr::pool_memory_resource<mr::cuda_memory_resource>&>(*b.of_each.find("pool"))
                 .statistics();
         }},
    };
}

std::string everything_is_refused(belongings& b) {
    std::string wrong;
    for (const named_call& c : ways_in(b)) wrong += refusal(c.name, c.call);
    for (resources::entry& e : b.of_each.all)
        for (const std::size_t bytes : {std::size_t{100}, 2 * mib})
            wrong += refusal(e.name, [&] { (void)e.resource->allocate(bytes, b.stream.view()); });
    if (rmm::get_num_cuda_devices() != -1) wrong += "get_num_cuda_devices\n";
    if (rmm::get_current_cuda_device().value() != -1) wrong += "get_current_cuda_device\n";
    return wrong;
}

}  // namespace

TEST(Fork, the_child_of_a_parent_that_has_used_nothing_may_use_everything) {
    EXPECT_EQ(in_child([] {
                  // Neither this process nor the next has touched a driver.
                  rmm::mr::cuda_memory_resource made_before;
                  return in_child([&] {
                      auto b = std::make_unique<belongings>();
                      int value = b->scalar.value(b->stream.view());
                      rmm::device_buffer more(1000, b->stream.view(), &made_before);
                      b->stream.synchronize();
                      more = rmm::device_buffer();
                      const std::string said = belongings::go_quietly(std::move(b));
                      return value == 7 ? said : "the scalar is " + std::to_string(value) + said;
                  });
              }),
              "");
}

TEST(Fork, a_parent_whose_use_came_to_nothing_loses_nothing) {
    EXPECT_EQ(in_child([] {
                  setenv("KMM_DRIVER", "hip", 1);
                  if (rmm::get_num_cuda_devices() != -1) return std::string("hip is there");
                  return in_child([] {
                      setenv("KMM_DRIVER", "host", 1);
                      rmm::cuda_stream().synchronize();
                      return std::string();
                  });
              }),
              "");
}

TEST(Fork, a_stream_operation_as_the_first_use_in_the_child_is_refused) {
    EXPECT_EQ(in_child([] {
                  rmm::cuda_stream stream;
                  stream.synchronize();
                  return in_child([&] {
                      return refusal("synchronize", [&] { stream.synchronize(); }) +
                             refusal("device_scalar", [&] { rmm::device_scalar<int> s(1, stream.view()); });
                  });
              }),
              "");
}

TEST(Fork, every_way_into_a_driver_that_the_parent_used_names_fork_and_spawn) {
    EXPECT_EQ(in_child([] {
                  belongings b;
                  return refusals(ways_in(b)) + in_child([&] { return everything_is_refused(b); });
              }),
              "");
}

TEST(Fork, frees_and_destructors_in_the_child_are_quiet) {
    EXPECT_EQ(in_child([] {
                  auto b = std::make_unique<belongings>();
                  const std::string wrong = in_child([&] { return belongings::go_quietly(std::move(b)); });
                  return wrong + belongings::go_quietly(std::move(b));
              }),
              "");
}

TEST(Fork, the_grandchild_is_refused_too) {
    EXPECT_EQ(in_child([] {
                  rmm::cuda_stream().synchronize();
                  return in_child(
                      [] { return in_child([] { return refusal("cuda_stream", [] { rmm::cuda_stream s; }); }); });
              }),
              "");
}

TEST(Fork, what_needs_no_driver_works_in_the_child) {
    EXPECT_EQ(in_child([] {
                  rmm::cuda_stream().synchronize();
                  return in_child([] {
                      rmm::mr::new_delete_resource host;
                      host.deallocate(host.allocate(1000), 1000);
                      rmm::memory_tag tag("of the child");
                      return std::string();
                  });
              }),
              "");
}

TEST(Fork, a_device_scope_that_began_before_the_fork_ends_quietly_in_the_child) {
    EXPECT_EQ(in_child([] {
                  if (rmm::get_num_cuda_devices() < 2) return std::string();
                  auto scope = std::make_unique<rmm::cuda_set_device_raii>(rmm::cuda_device_id{1});
                  return in_child([&] { return said_on_stderr([&] { scope.reset(); }); });
              }),
              "");
}

TEST(Fork, a_driver_of_the_parent_answers_in_the_child_and_ends_there_without_waiting) {
    namespace driver = kmm::driver;
    EXPECT_EQ(in_child([] {
                  auto d = driver::make_host_driver({});
                  driver::StreamHandle stream;
                  driver::EventHandle event;
                  void* memory = nullptr;
                  if (!d->create_stream(0, true, 0, &stream).ok() || !d->create_event(0, false, false, &event).ok() ||
                      !d->allocate(0, 4096, &memory).ok())
                      return std::string("no driver");
                  const unsigned char zero = 0;
                  if (!d->fill(memory, &zero, 1, 4096, stream).ok() || !d->record_event(event, stream).ok() ||
                      !d->synchronize_stream(stream).ok())
                      return std::string("no stream");
                  return in_child([&] {
                      std::string wrong;
                      const auto expect = [&](const char* name, driver::Status s) {
                          if (s.code != driver::Code::shut_down) wrong += std::string(name) + "\n";
                      };
                      void* other = nullptr;
                      driver::PointerInfo info;
                      expect("fill", d->fill(memory, &zero, 1, 4096, stream));
                      expect("copy", d->copy(memory, &zero, 1, stream));
                      expect("synchronize_stream", d->synchronize_stream(stream));
                      expect("synchronize_event", d->synchronize_event(event));
                      expect("query_event", d->query_event(event));
                      expect("synchronize_device", d->synchronize_device(0));
                      expect("allocate", d->allocate(0, 4096, &other));
                      expect("allocate_pinned", d->allocate_pinned(4096, &other));
                      expect("free", d->free(memory));
                      expect("pointer_info", d->pointer_info(memory, &info));
                      expect("destroy_event", d->destroy_event(event));
                      expect("destroy_stream", d->destroy_stream(stream));
                      d.reset();
                      try {
                          (void)driver::make_host_driver({});
                          wrong += "make_host_driver\n";
                      } catch (const std::runtime_error&) {}
                      return wrong;
                  });
              }),
              "");
}

TEST(Fork, forks_while_other_threads_use_everything_leave_children_that_end) {
    if (!kmm::test::new_survives_a_fork_beside_threads)
        GTEST_SKIP() << "the sanitizer's allocator takes no part in fork";
    EXPECT_EQ(in_child(
                  [] {
                      auto b = std::make_unique<belongings>();
                      std::atomic<bool> stop{false};
                      std::vector<std::thread> threads;
                      for (int i = 0; i < 3; ++i)
                          threads.emplace_back([&, i] {
                              while (!stop.load()) {
                                  rmm::cuda_stream own;
                                  const rmm::memory_tag tag(i == 0 ? "first" : "others");
                                  for (auto& e : b->of_each.all) {
                                      void* const small = e.resource->allocate(500, own.view());
                                      void* const large = e.resource->allocate(mib, b->stream.view());
                                      e.resource->deallocate(small, 500, own.view());
                                      e.resource->deallocate(large, mib, b->stream.view());
                                  }
                                  rmm::device_buffer d(1000, own.view());
                                  (void)rmm::memory_report(rmm::cuda_device_id{0});
                              }
                          });
                      std::string wrong;
                      const int rounds = std::getenv("KMM_TEST_SHORT") != nullptr ? 5 : 60;
                      for (int i = 0; i < rounds && wrong.empty(); ++i)
                          wrong = in_child([&] {
                              const rmm::memory_tag tag("child");
                              std::string text = everything_is_refused(*b);
                              if (rmm::detail::is_in_transit(0)) text += "memory is on its way\n";
                              return text + belongings::go_quietly(std::move(b));
                          });
                      stop.store(true);
                      for (std::thread& t : threads) t.join();
                      return wrong;
                  },
                  240),
              "");
}

TEST(Fork, a_parent_that_has_used_nothing_but_what_needs_no_driver_leaves_no_child_waiting) {
    if (!kmm::test::new_survives_a_fork_beside_threads)
        GTEST_SKIP() << "the sanitizer's allocator takes no part in fork";
    EXPECT_EQ(in_child(
                  [] {
                      std::atomic<bool> stop{false};
                      std::thread names([&] {
                          for (int i = 0; !stop.load(); ++i) {
                              const rmm::memory_tag tag(("tag " + std::to_string(i % 50000)).c_str());
                              (void)rmm::memory_tag::current();
                          }
                      });
                      std::string wrong;
                      const int rounds = std::getenv("KMM_TEST_SHORT") != nullptr ? 10 : 200;
                      for (int i = 0; i < rounds && wrong.empty(); ++i)
                          wrong = in_child([&] {
                              const rmm::memory_tag tag(("child " + std::to_string(i)).c_str());
                              // Works, or is refused where the thread was in the middle of something.
                              try {
                                  rmm::cuda_stream().synchronize();
                              } catch (const rmm::logic_error&) {
                                  return refusal("cuda_stream", [] { rmm::cuda_stream s; });
                              }
                              return std::string();
                          });
                      stop.store(true);
                      names.join();
                      return wrong;
                  },
                  240),
              "");
}

TEST(Fork, a_fork_in_the_middle_of_a_growth_leaves_nothing_in_transit) {
    struct forking final : base {
        std::string wrong = "the pool did not grow";
        bool grows = false;
        rmm::mr::cuda_memory_resource below;
        void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
            if (!grows) return below.allocate(bytes, stream);
            if (!rmm::detail::is_in_transit(0))
                wrong = "the growth is not marked";
            else
                wrong = in_child([] {
                    return std::string(rmm::detail::is_in_transit(0) ? "memory is on its way in the child" : "");
                });
            return below.allocate(bytes, stream);
        }
        void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
            below.deallocate(ptr, bytes, stream);
        }
    };
    EXPECT_EQ(in_child([] {
                  forking upstream;
                  rmm::mr::pool_memory_resource<forking> pool(&upstream, mib);
                  upstream.grows = true;
                  pool.deallocate(pool.allocate(4 * mib), 4 * mib);
                  return upstream.wrong;
              }),
              "");
}

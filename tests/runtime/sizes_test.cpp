// Sizes that no memory has, and elements of unusual alignment: what a program gets for them.
#include <algorithm>
#include <array>
#include <limits>

#include "harness.hpp"

namespace {

constexpr std::int64_t half = std::int64_t{1} << 32;  // of the bits of a size
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

/// Checks that `f` throws an E whose text has all `parts`.
template<typename E, typename F>
void refuses(std::initializer_list<const char*> parts, F&& f) {
    const auto error = thrown_by<E>(f);
    ASSERT_NE(error, nullptr);
    for (const char* part : parts) EXPECT_TRUE(says(*error, part)) << "no '" << part << "' in: " << error->what();
}

const auto nothing = Host([](auto&&...) {});

TEST(Sizes, an_array_whose_bytes_no_number_counts_is_refused_with_shape_and_element_size) {
    using kmm::InvalidArgument;
    refuses<InvalidArgument>({"{4294967296, 4294967296}", "1 byte"}, [] { Array<char, 2>{{half, half}}; });
    refuses<InvalidArgument>({"{2305843009213694464}", "8 bytes"},
                             [] { Array<double>((std::int64_t{1} << 61) + 512); });
    refuses<InvalidArgument>({"{9223372036854775807}", "2 bytes"}, [] { Array<short>{largest}; });
    refuses<InvalidArgument>({"{2, 4611686018427387904}", "1 byte"},
                             [] { Array<char, 2>{{2, std::int64_t{1} << 62}}; });
    EXPECT_EQ(Array<char>(largest).volume(), largest);
    EXPECT_EQ((Array<double, 2>{{std::int64_t{1} << 30, (std::int64_t{1} << 30) - 1}}.volume()),
              (std::int64_t{1} << 60) - (std::int64_t{1} << 30));
}

TEST(Sizes, an_array_without_elements_may_be_as_long_as_it_likes_along_other_axes) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const std::int64_t far = std::int64_t{1} << 40;
        Array<double, 3> a{{0, far, far}};
        rt.submit(host(), Host([](kmm::ViewMut<double, 3> view) {
                      if (!view.is_empty() || view.size() != 0) throw std::logic_error("it has elements");
                  }),
                  write(a));
        EXPECT_TRUE(a.copy_to_vector().empty());
        EXPECT_TRUE((rt.array<double, 3>({far, far, 0}).copy_to_vector().empty()));
    });
}

TEST(Sizes, bound_arrays_are_checked_before_their_distribution) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        using kmm::InvalidArgument;
        char byte = 0;
        const auto* doubles = reinterpret_cast<const double*>(&byte);
        const Dim<2> square(half, half);
        refuses<InvalidArgument>({"{4294967296, 4294967296}", "1 byte"}, [&] { rt.array<char, 2>(square); });
        refuses<InvalidArgument>({"{4294967296, 4294967296}", "8 bytes"}, [&] { rt.array<double, 2>(square, {1, 1}); });
        refuses<InvalidArgument>({"{4294967296, 4294967296}", "8 bytes"}, [&] { rt.allocate(doubles, square); });
        refuses<InvalidArgument>({"{4294967296, 4294967296}", "8 bytes"}, [&] { rt.allocate(doubles, half, half); });
        refuses<InvalidArgument>({"{4294967296, 1073741824}", "8 bytes"}, [&] {
            kmm::ArrayInstance<2>::create(rt.worker(), Distribution<2>::single({half, half / 4}),
                                          kmm::DataType::of<double>());
        });
        refuses<InvalidArgument>({"1125899906842624 chunks", "1000000000"},
                                 [&] { rt.array<char>(std::int64_t{1} << 50, Dim<1>(1)); });
    });
}

TEST(Sizes, an_array_that_fits_a_number_and_no_memory_is_refused_at_the_submit) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        Array<char> a(largest);
        refuses<kmm::OutOfMemory>({"can never run", "9223372036854775808 bytes", "no setting helps"},
                                  [&] { rt.submit(host(), nothing, write(a)); });
        // The chunks of a distribution that ends where numbers end are found like any others.
        auto b =
            rt.array<char>(largest, Distribution<1>(largest, largest / 2 + 1, {MemoryId::host(), MemoryId::host()}));
        refuses<kmm::OutOfMemory>({"chunk 1 {4611686018427387904...9223372036854775807}"},
                                  [&] { rt.submit(host(), nothing, write(b[kmm::range(largest - 1, largest)])); });
        auto c = rt.array<char>(largest, Distribution<1>(largest, largest - 1, {MemoryId::host(), MemoryId::host()}));
        EXPECT_EQ(c.distribution().num_chunks(), 2u);
        rt.submit(host(), nothing, write(c[kmm::range(largest - 1, largest)]));
        rt.synchronize();
    });
}

TEST(Sizes, a_task_whose_regions_sum_beyond_any_number_is_refused_at_the_submit) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const std::int64_t much = largest / 2 + 300;  // four of them, rounded, are 2048 more than 64 bits count
        Array<char> a(much), b(much), c(much), d(much);
        refuses<kmm::OutOfMemory>({"can never run", "18446744073709551615 bytes"},
                                  [&] { rt.submit(host(), nothing, write(a), write(b), write(c), write(d)); });
        EXPECT_FALSE(a.has_instance());
        rt.synchronize();
    });
}

TEST(Sizes, regions_of_copies_that_end_beyond_any_number_are_outside) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const auto values = counting<int>(100);
        const auto a = rt.allocate(values);
        int out = -1;
        refuses<kmm::InvalidArgument>({"{9223372036854775807}", "{5}", "0...100"},
                                      [&] { a.copy_to(&out, Point<1>(largest), Dim<1>(5)); });
        refuses<kmm::InvalidArgument>({"{99}", "{9223372036854775807}"},
                                      [&] { a.copy_from(&out, Point<1>(99), Dim<1>(largest)); });
        refuses<kmm::InvalidArgument>({"{3}", "{-1}"}, [&] { a.copy_to(&out, Point<1>(3), Dim<1>(-1)); });
        refuses<kmm::InvalidArgument>({"{-1}", "{2}"}, [&] { a.copy_to(&out, Point<1>(-1), Dim<1>(2)); });
        EXPECT_EQ(out, -1);
        a.copy_to(&out, Point<1>(99), Dim<1>(1));
        EXPECT_EQ(out, 99);
    });
}

TEST(Sizes, views_whose_strides_lead_out_of_the_address_space_are_refused) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        const auto a = rt.allocate(counting<double>(16).data(), Dim<2>(4, 4));
        double out[16] = {};
        using Strided = kmm::ViewStridedMut<double, 2>;
        const Strided view(out, Dim<2>(4, 4), kmm::fixed_vector<long, 2>(std::int64_t{1} << 61, 1));
        refuses<kmm::InvalidArgument>({"{4, 4}", "{2305843009213693952, 1}", "8 bytes"}, [&] { a.copy_to(view); });
        refuses<kmm::InvalidArgument>({"{4, 4}", "{2305843009213693952, 1}"}, [&] { a.copy_from(view); });
        EXPECT_EQ(out[0], 0);
    });
}

TEST(Sizes, a_device_function_that_asks_for_more_elements_than_bytes_can_count_fails_with_both_numbers) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        constexpr std::size_t n = (std::size_t{1} << 61) + 1;  // 8 bytes modulo 2^64
        Array<double> a(10);
        rt.submit(device(0), GPU([](kmm::DeviceResource& d, kmm::GPUViewMut<double> v) { d.fill(v.data(), 10, 1.0); }),
                  write(a));
        const auto fill = [](kmm::DeviceResource& d, kmm::GPUViewMut<double> v) { d.fill(v.data(), n, 2.0); };
        const auto copy = [](kmm::DeviceResource& d, kmm::GPUViewMut<double> v) { d.copy(v.data(), v.data() + 1, n); };
        const auto scratch = [](kmm::DeviceResource& d, kmm::GPUViewMut<double>) { d.scratch<double>(n); };
        const auto expect = [&](EventId event) {
            const auto error = thrown_by<kmm::TaskError>([&] { rt.wait(event); });
            ASSERT_NE(error, nullptr);
            EXPECT_TRUE(nests<kmm::InvalidArgument>(*error, "2305843009213693953 elements of 8 bytes"))
                << error->what();
        };
        for (int i = 0; i < 3; i++) {
            Array<double> b(10);
            expect(i == 0   ? rt.submit(device(0), GPU(fill), write(b))
                   : i == 1 ? rt.submit(device(0), GPU(copy), write(b))
                            : rt.submit(device(0), GPU(scratch), write(b)));
        }
        EXPECT_EQ(a.copy_to_vector(), std::vector<double>(10, 1.0));
    });
}

/// One element takes 8 KiB.
template<std::size_t Alignment>
struct alignas(Alignment) Wide {
    std::uint64_t value;
    unsigned char rest[8192 - sizeof(std::uint64_t)];
};

template<std::size_t Alignment>
void expect_aligned_elements() {
    using T = Wide<Alignment>;
    static constexpr std::int64_t chunk = 3, chunks = 4;
    // A write and a read, and what their beginnings may cost.
    const std::size_t largest_task = 2 * (chunk * sizeof(T) + Alignment);
    for_each_configuration(largest_task, [](const RuntimeHandle& rt) {
        const auto check = [](const void* data) {
            if (reinterpret_cast<std::uintptr_t>(data) % Alignment != 0) throw std::runtime_error("not aligned");
        };
        // Of other sizes, so that chunks do not lie at multiples of theirs by themselves.
        auto odd = rt.array<char>(7 * 300, Dim<1>(300));
        odd.fill('o');
        auto a = rt.array<T>(chunk * chunks, Dim<1>(chunk)), b = rt.array<T>(chunk * chunks, Dim<1>(chunk));
        const auto set = [=](kmm::SubviewMut<T> view) {
            check(view.data());
            for (auto i = view.begin(); i < view.end(); i++) view[i].value = static_cast<std::uint64_t>(i);
        };
        const auto copy = [=](kmm::DeviceResource& d, kmm::GPUSubviewMut<T> to, kmm::GPUSubview<T> from) {
            check(to.data());
            check(from.data());
            d.copy(from.data(), to.data(), from.size());
        };
        rt.parallel_submit(chunk * chunks, chunk, Host(set), write(a[_x]));
        for (int pass = 0; pass < 3; pass++) {
            rt.parallel_submit(chunk * chunks, chunk, GPU(copy), overwrite(b[_x]), a[_x]);
            rt.parallel_submit(chunk * chunks, chunk, GPU(copy), overwrite(a[_x]), b[_x]);
        }
        rt.parallel_submit(chunk * chunks, 1, Host([=](kmm::Subview<T> view) { check(view.data()); }), a[_x]);
        rt.synchronize();
        const std::vector<T> values = a.copy_to_vector();
        for (std::size_t i = 0; i < values.size(); i++) EXPECT_EQ(values[i].value, i);
        EXPECT_EQ(odd.copy_to_vector(), std::vector<char>(7 * 300, 'o'));
    });
}

TEST(Alignment, chunks_begin_where_the_alignment_of_their_elements_allows) {
    expect_aligned_elements<256>();
    expect_aligned_elements<512>();
    expect_aligned_elements<4096>();
}

struct alignas(8192) TooAligned {
    char value[8192];
};

TEST(Alignment, an_instance_of_a_type_that_is_aligned_to_more_than_a_page_is_refused) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        refuses<kmm::InvalidArgument>({"aligned to 8192 bytes", "4096"}, [&] {
            kmm::ArrayInstance<1>::create(rt.worker(), Distribution<1>::single(10), kmm::DataType::of<TooAligned>());
        });
    });
}

TEST(Alignment, what_it_costs_counts_into_what_a_task_needs) {
    using T = Wide<4096>;
    RuntimeConfig config = config_with(1);
    config.device_memory_limit = 8192 + 4096 - 256;
    const auto fits = kmm::make_runtime(config);
    fits.submit(device(0), GPU([](auto&&...) {}), write(fits.array<T>(1)));
    fits.synchronize();
    config.device_memory_limit -= 256;
    const auto too_small = kmm::make_runtime(config);
    auto a = too_small.array<T>(1);
    refuses<kmm::OutOfMemory>({"can never run", "12032 bytes"},
                              [&] { too_small.submit(device(0), GPU([](auto&&...) {}), write(a)); });
}

TEST(Fill, one_that_is_refused_for_its_chunks_on_the_host_changes_none_on_a_device) {
    for (const std::size_t num_devices : {1, 2, 4}) {
        KMM_NEED_DEVICES(num_devices);
        RuntimeConfig config = config_with(num_devices);
        config.device_memory_limit = 1 << 20;
        limit_host_memory(config, 1 << 20);
        const RuntimeHandle rt = kmm::make_runtime(config);
        const std::int64_t small = 1000, large = 2 << 20;
        std::vector<kmm::ArrayChunk<1>> chunks;
        for (std::size_t d = 0; d < num_devices; d++)
            chunks.push_back({MemoryId(DeviceId(d)), Point<1>(small * static_cast<std::int64_t>(d)), Dim<1>(small)});
        const std::int64_t on_devices = small * static_cast<std::int64_t>(num_devices);
        chunks.push_back({MemoryId::host(), Point<1>(on_devices), Dim<1>(large)});
        const auto a = rt.array<char>(on_devices + large, Distribution<1>::from_chunks(on_devices + large, chunks));
        std::vector<char> before(static_cast<std::size_t>(small), 'b');
        a.copy_from(before.data(), Point<1>(0), Dim<1>(small));
        refuses<kmm::OutOfMemory>({"\"fill\"", "on the host", "2097152 bytes"}, [&] { a.fill('x'); });
        std::vector<char> after(before.size());
        a.copy_to(after.data(), Point<1>(0), Dim<1>(small));
        EXPECT_EQ(after, before);
        const auto last = Point<1>(on_devices - small);
        if (num_devices > 1) {
            EXPECT_THROW(a.copy_to(after.data(), last, Dim<1>(small)), kmm::UninitializedRead);
        }
        EXPECT_EQ(rt.stats().tasks_failed, 0u);
    }
}

TEST(Fill, chunks_on_devices_and_on_the_host_are_one_submit) {
    for_each_configuration(1 << 16, [](const RuntimeHandle& rt) {
        const Distribution<1> half_and_half(1 << 16, 1 << 15, {MemoryId(DeviceId(0)), MemoryId::host()});
        const auto a = rt.array<char>(1 << 16, half_and_half);
        const auto before = rt.stats().tasks_submitted;
        rt.wait(a.fill('y'));
        EXPECT_EQ(rt.stats().tasks_submitted - before, 2u);
        EXPECT_EQ(a.copy_to_vector(), std::vector<char>(1 << 16, 'y'));
    });
}

template<std::size_t Bytes> struct Element {
    std::array<unsigned char, Bytes> bytes;
    friend bool operator==(const Element&, const Element&) = default;
};

/// An array of chunks of a few elements each, more than one task fills, with its last chunk shorter.
template<std::size_t Bytes> void fill_many(const RuntimeHandle& rt) {
    constexpr std::int64_t chunk = 9, count = 1100 * chunk - 4;
    Element<Bytes> first{}, second{};
    for (std::size_t i = 0; i < Bytes; i++) {
        first.bytes[i] = static_cast<unsigned char>(i + 1);
        second.bytes[i] = static_cast<unsigned char>(200 - i);
    }
    const auto a = rt.array<Element<Bytes>>(count, Dim<1>(chunk));
    a.fill(first);
    a.fill(second);
    const auto found = a.copy_to_vector();
    ASSERT_EQ(found.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(std::ranges::all_of(found, [&](const Element<Bytes>& e) { return e == second; })) << Bytes << " bytes";
}

// Some memory of a device comes in allocations of the driver's that may touch, and no call may reach over two.
TEST(Fill, very_many_small_chunks_hold_the_value_in_memory_of_any_kind) {
    for (const auto kind : {kmm::DeviceMemoryKind::Automatic, kmm::DeviceMemoryKind::NoPool}) {
        RuntimeConfig config;
        config.device_memory_kind = kind;
        config.virtual_device_memory = std::size_t{64} << 20;
        const RuntimeHandle rt = kmm::make_runtime(config);
        fill_many<1>(rt);
        fill_many<4>(rt);
        fill_many<12>(rt);
        fill_many<64>(rt);
        fill_many<100>(rt);
    }
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        fill_many<8>(rt);
        fill_many<200>(rt);
    });
}

}  // namespace

// Arrays of every rank, element size and source: making, filling, mapping, copying.
#include <array>
#include <numeric>

#include "harness.hpp"

namespace {

/// Uneven axes, cut into chunks of which the last ones are short.
template<std::size_t N>
Dim<N> shape_of() {
    Dim<N> shape;
    for (std::size_t k = 0; k < N; k++) shape[k] = static_cast<std::int64_t>(N <= 3 ? 7 - k : 2 + k % 2);
    return shape;
}
template<std::size_t N>
Dim<N> chunk_shape_of() {
    Dim<N> chunk;
    for (std::size_t k = 0; k < N; k++) chunk[k] = static_cast<std::int64_t>(N <= 3 ? 2 + k : 1 + (k + 1) % 2);
    return chunk;
}
constexpr std::size_t largest_volume = 6 * 6 * 6 * 6;  // of rank 8

/// Calls `f` with std::integral_constant for the ranks 0 to 8.
template<typename F, std::size_t... Ns>
void for_each_of(std::index_sequence<Ns...>, const F& f) {
    (f(std::integral_constant<std::size_t, Ns>()), ...);
}
template<typename F>
void for_each_rank(const F& f) {
    for_each_of(std::make_index_sequence<9>(), [&](auto rank) {
        SCOPED_TRACE("rank " + std::to_string(rank()));
        f(rank);
    });
}

/// The access A(1, 1, ..., _x): a row along the last axis.
template<typename A, std::size_t... Ks>
auto row(A& array, std::index_sequence<Ks...>) {
    constexpr std::size_t last = sizeof...(Ks) - 1;
    return array((Ks == last ? kmm::IndexMap(_x) : kmm::IndexMap(kmm::range(1, 2)))...);
}

TEST(Row028, arrays_of_every_rank_are_made_filled_mapped_and_copied) {
    for_each_configuration(working_set({8 * largest_volume, 8 * largest_volume}), [](RuntimeHandle rt) {
        for_each_rank([&](auto rank) {
            constexpr std::size_t N = rank();
            const Dim<N> shape = shape_of<N>();
            const auto volume = static_cast<std::size_t>(shape.volume());
            auto a = rt.array<std::int64_t, N>(shape, shape);
            a.fill(5);
            ASSERT_EQ(a.copy_to_vector(), std::vector<std::int64_t>(volume, 5));
            // All of it in one view: on the host, then on the last device into another array.
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t, N> v) {
                          for (std::int64_t i = 0; i < v.size(); i++) v.data()[i] += i;
                      }),
                      write(a));
            Array<std::int64_t, N> b(shape);
            rt.submit(device(num_devices(rt) - 1),
                      GPU([](kmm::DeviceResource& device, kmm::GPUView<std::int64_t, N> from,
                             kmm::GPUViewMut<std::int64_t, N> to) { device.copy(from, to); }),
                      a, overwrite(b));
            std::vector<std::int64_t> expected = counting<std::int64_t>(volume, 5);
            ASSERT_EQ(b.copy_to_vector(), expected);
            // A part of it, through a mapping with one expression for each axis.
            if constexpr (N > 0) {
                const std::int64_t length = shape[N - 1];
                rt.parallel_submit(kmm::DomainDim(length), kmm::DomainDim(length),
                                   Host([](kmm::SubviewMut<std::int64_t, N> v) {
                                       for (std::int64_t i = 0; i < v.size(); i++) v.data()[i] = -1;
                                   }),
                                   write(row(b, std::make_index_sequence<N>())));
                std::size_t first = 0;
                for (std::size_t k = 0; k + 1 < N; k++) first = (first + 1) * static_cast<std::size_t>(shape[k + 1]);
                for (std::size_t i = 0; i < static_cast<std::size_t>(length); i++) expected[first + i] = -1;
                ASSERT_EQ(b.copy_to_vector(), expected);
            } else {
                EXPECT_EQ(b.get(), 5);
            }
        });
    });
}

template<std::size_t Bytes>
void fill_elements_of(const RuntimeHandle& rt) {
    SCOPED_TRACE(std::to_string(Bytes) + " bytes");
    using Element = std::array<unsigned char, Bytes>;
    Element value;
    for (std::size_t i = 0; i < Bytes; i++) value[i] = static_cast<unsigned char>(3 * i + 1);
    auto a = rt.array<Element>(101, Dim<1>(40));
    a.fill(value);
    for (const Element& e : a.copy_to_vector()) ASSERT_EQ(e, value);
    auto s = rt.array<Element, 0>({});
    s.fill(value);
    EXPECT_EQ(s.get(), value);
}

TEST(Row028, elements_of_every_size_are_filled_and_scalars_are_read) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        fill_elements_of<1>(rt);
        fill_elements_of<2>(rt);
        fill_elements_of<3>(rt);
        fill_elements_of<4>(rt);
        fill_elements_of<6>(rt);
        fill_elements_of<8>(rt);
        fill_elements_of<12>(rt);
        fill_elements_of<16>(rt);
        fill_elements_of<24>(rt);
        fill_elements_of<64>(rt);
        fill_elements_of<100>(rt);
        fill_elements_of<1000>(rt);
    });
}

TEST(Row030, copy_from_into_chunks_of_every_rank_comes_back_unchanged) {
    for_each_configuration(working_set({8 * largest_volume}), [](RuntimeHandle rt) {
        for_each_rank([&](auto rank) {
            constexpr std::size_t N = rank();
            const Dim<N> shape = shape_of<N>();
            const auto values = counting<std::int64_t>(static_cast<std::size_t>(shape.volume()), 17);
            auto a = rt.array<std::int64_t, N>(shape, chunk_shape_of<N>());
            if (N > 0) {
                ASSERT_GT(a.distribution().num_chunks(), 1u);
            }
            a.copy_from(values);
            ASSERT_EQ(a.copy_to_vector(), values);
            // And into chunks that already hold something, from a plain pointer.
            const auto others = counting<std::int64_t>(values.size(), -900);
            a.copy_from(others.data());
            ASSERT_EQ(a.copy_to_vector(), others);
        });
    });
}

TEST(Row031, every_form_of_copy_from_and_allocate_works) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        const std::vector<float> values = counting<float>(6);
        auto a = rt.array<float>(6, Dim<1>(4));
        a.copy_from(values);
        EXPECT_EQ(a.copy_to_vector(), values);
        const std::vector<float> others = counting<float>(6, 10);
        a.copy_from(others.data());
        EXPECT_EQ(a.copy_to_vector(), others);
        a.copy_from(values.data(), 6);
        EXPECT_EQ(a.copy_to_vector(), values);

        EXPECT_EQ(rt.allocate(values).copy_to_vector(), values);
        EXPECT_EQ(rt.allocate({1.0f, 2.0f}).copy_to_vector(), (std::vector<float>{1, 2}));
        const Array<float, 2> two = rt.allocate(values.data(), 2, 3);
        EXPECT_EQ(two.size(), Dim<2>(2, 3));
        EXPECT_EQ(two.copy_to_vector(), values);

        std::vector<float> own = values;
        const kmm::View<float, 2> view(own.data(), Dim<2>(3, 2));
        const Array<float, 2> from_view = rt.allocate(view);
        EXPECT_EQ(from_view.size(), Dim<2>(3, 2));
        EXPECT_EQ(from_view.copy_to_vector(), values);
        const kmm::ViewMut<float> mutable_view(own.data(), Dim<1>(6));
        EXPECT_EQ(rt.allocate(mutable_view).copy_to_vector(), values);
        Array<float> from_mutable = rt.array<float>(6);
        from_mutable.copy_from(mutable_view);
        EXPECT_EQ(from_mutable.copy_to_vector(), values);
    });
}

TEST(Row033, parts_of_an_array_by_bounds_and_by_offset_and_size_go_both_ways_and_outside_is_refused) {
    for_each_configuration(working_set({8 * 20}), [](RuntimeHandle rt) {
        auto a = rt.array<std::int64_t, 2>({4, 5}, Dim<2>(3, 2));
        a.copy_from(counting<std::int64_t>(20));
        std::vector<std::int64_t> part(4);
        const kmm::Bounds<2> middle = kmm::Bounds<2>::from_offset_size(Point<2>(2, 1), Dim<2>(2, 2));
        a.copy_to(part.data(), middle);
        EXPECT_EQ(part, (std::vector<std::int64_t>{11, 12, 16, 17}));
        const std::vector<std::int64_t> fresh{-1, -2, -3, -4};
        a.copy_from(fresh.data(), middle);
        a.copy_to(part.data(), Point<2>(2, 0), Dim<2>(1, 4));
        EXPECT_EQ(part, (std::vector<std::int64_t>{10, -1, -2, 13}));
        a.copy_from(fresh.data(), Point<2>(0, 4), Dim<2>(4, 1));
        a.copy_to(part.data(), Point<2>(0, 4), Dim<2>(4, 1));
        EXPECT_EQ(part, fresh);
        const std::vector<std::int64_t> before = a.copy_to_vector();
        EXPECT_THROW(a.copy_to(part.data(), Point<2>(3, 3), Dim<2>(2, 2)), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_from(part.data(), Point<2>(-1, 0), Dim<2>(2, 2)), kmm::InvalidArgument);
        EXPECT_EQ(part, fresh);
        EXPECT_EQ(a.copy_to_vector(), before);
    });
}

}  // namespace

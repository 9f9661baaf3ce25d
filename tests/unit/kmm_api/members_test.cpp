// Which parameter types of the program's own a kernel task fills by its table, and which a launcher builds. Known when
// this compiles, with every compiler alike.
#include "kmm/detail/members.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "kmm/detail/kernel_task.hpp"
#include "kmm/kmm.hpp"

namespace {

using kmm::GPUSubview;
using kmm::GPUView;
using kmm::GPUViewMut;
using kmm::detail::count_members;
using Stored = kmm::detail::StoredView<float, 1, true, true>;
using StoredRead = kmm::detail::StoredView<float, 1, false, true>;

struct One {
    GPUView<float> values;
    __host__ __device__ float first() const { return values[0]; }
};
struct Four {
    One one;
    GPUViewMut<float> more;
    double factor;
    int mode : 4;
};
struct WithReference {
    const GPUView<float>& values;
};
struct Mixed {
    GPUView<float, 0> scalar;
    kmm::AbstractView<float, kmm::views::static_domain<long, 3>, kmm::views::default_layout,
                      kmm::views::device_accessor>
        fixed;
    float* pointer;
    int flags : 3;
    kmm::Bounds<2> bounds;
};
struct WithBase : One {};
struct WithBaseAndMember : One {
    long more;
};
struct Derived : GPUView<float> {};
struct WithArray {
    GPUView<float> values;
    float weights[3];
};
struct TwoArrays {
    float a[2], b[2];
};
struct Computed {
    GPUView<float> values;
    bool is_aligned = reinterpret_cast<std::uintptr_t>(values.data()) % 64 == 0;
};
struct WithOptional {
    GPUView<float> values;
    std::optional<float> limit;
};
struct Constructed {
    Constructed() = default;
    Constructed(GPUView<float> v) : address(reinterpret_cast<std::uintptr_t>(v.data())) {}
    std::uintptr_t address = 0;
};
struct Wrapped {
    Constructed inner;
};
struct FromAnything {
    FromAnything() = default;
    template<typename T>
    FromAnything(T) {}
};
struct WithFromAnything {
    GPUView<float> values;
    FromAnything more;
};
struct Thirteen {
    int a, b, c, d, e, f, g, h, i, j, k, l, m;
};
union Either {
    GPUView<float> values;
    long number;
};

TEST(Members, are_counted_where_the_number_is_certain) {
    EXPECT_EQ(count_members<One>(), 1u);
    EXPECT_EQ(count_members<Four>(), 4u);
    EXPECT_EQ(count_members<Mixed>(), 5u);
    EXPECT_EQ(count_members<WithBase>(), 1u) << "of the base";
    EXPECT_EQ(count_members<Computed>(), 2u);
    EXPECT_EQ(count_members<WithArray>(), 0u);
    EXPECT_EQ(count_members<TwoArrays>(), 0u);
    EXPECT_EQ(count_members<Derived>(), 0u);
    EXPECT_EQ(count_members<Constructed>(), 0u);
    EXPECT_EQ(count_members<WithFromAnything>(), 0u);
    EXPECT_EQ(count_members<Thirteen>(), 0u);
    EXPECT_EQ(count_members<Either>(), 0u);
    EXPECT_EQ(count_members<float>(), 0u);
    EXPECT_NE(count_members<WithOptional>(), 1u);
    EXPECT_NE(count_members<WithBaseAndMember>(), 1u);
}

TEST(Members, are_referred_to_in_their_order) {
    const Four four{};
    const auto members = kmm::detail::members_of(four);
    EXPECT_EQ(&std::get<0>(members), &four.one);
    EXPECT_EQ(&std::get<1>(members), &four.more);
    EXPECT_EQ(&std::get<2>(members), &four.factor);
}

struct StoredFour {
    StoredRead one;
    Stored more;
    float factor;
    short mode;
};
struct StoredNumbers {
    float a, b;
};
struct Numbers {
    float a, b;
};

template<typename S, typename P>
constexpr bool is_late = kmm::detail::is_built_late_v<S, P>;

TEST(Members, of_an_aggregate_are_filled_by_the_table_unless_the_program_may_compute_one) {
    EXPECT_FALSE((is_late<StoredRead, One>));
    EXPECT_FALSE((is_late<StoredRead, WithBase>));
    EXPECT_FALSE((is_late<StoredFour, Four>));
    EXPECT_TRUE((kmm::detail::is_memberwise<StoredFour, Four>()));
    EXPECT_TRUE((is_late<StoredRead, Constructed>));
    EXPECT_TRUE((is_late<StoredRead, Wrapped>)) << "a constructor of the member";
    EXPECT_TRUE((is_late<StoredRead, Computed>)) << "an initializer of the program's";
    EXPECT_TRUE((is_late<StoredRead, WithFromAnything>));
    EXPECT_TRUE((is_late<StoredRead, WithOptional>));
    EXPECT_TRUE((is_late<StoredRead, WithArray>));
    EXPECT_TRUE((is_late<StoredRead, Derived>));
    EXPECT_TRUE((is_late<StoredRead, WithReference>));
    EXPECT_TRUE((is_late<StoredRead, Either>));
    EXPECT_FALSE((kmm::detail::is_memberwise<StoredNumbers, Numbers>())) << "another class, and no view";
}

}  // namespace

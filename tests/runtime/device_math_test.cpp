// The functions of CUDA's math API that emulated kernels have, each against a reference in long double or in wide
// integers.
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>

#include "harness.hpp"

namespace {

using Wide = long double;
constexpr Wide pi = 3.141592653589793238462643383279502884L;

// ------------------------------------------------------------------------------------------------ functions of numbers

/// How far `found` is from `right`, in units of the last place of `right` as a T.
template<typename T>
double ulps(T found, Wide right) {
    const T nearest = static_cast<T>(right);
    if (std::isnan(right) || std::isnan(found)) return std::isnan(right) && std::isnan(found) ? 0 : HUGE_VAL;
    if (std::isinf(nearest) || std::isinf(found)) return found == nearest ? 0 : HUGE_VAL;
    int exponent = 0;
    std::frexp(nearest, &exponent);
    exponent = std::max(exponent, std::numeric_limits<T>::min_exponent) - std::numeric_limits<T>::digits;
    return static_cast<double>(std::fabs(static_cast<Wide>(found) - right) / std::ldexp(Wide(1), exponent));
}

/// x with f(x) = y, f rising between `low` and `high`.
Wide inverse(const std::function<Wide(Wide)>& f, Wide y, Wide low, Wide high) {
    for (int i = 0; i < 200; i++) {
        const Wide middle = (low + high) / 2;
        (f(middle) < y ? low : high) = middle;
    }
    return (low + high) / 2;
}
Wide inverse_erfc(Wide p) {
    if (p <= 1) return inverse([](Wide x) { return -std::erfc(x); }, -p, 0, 110);
    return -inverse([](Wide x) { return -std::erfc(x); }, p - 2, 0, 110);
}
Wide inverse_erf(Wide x) {
    if (std::fabs(x) > 0.5L) return std::copysign(inverse_erfc(1 - std::fabs(x)), x);
    return inverse([](Wide y) { return std::erf(y); }, x, -1, 1);
}
Wide bessel(int order, Wide x) {
    Wide sum = 0, term = 1;
    for (int k = 1; k < 2000; k++) {
        sum += term;
        term *= x * x / 4 / k / (k + order);
    }
    return order == 0 ? sum : sum * x / 2;
}
Wide sine_of_pi(Wide x) { return std::sin(pi * std::remainder(x, Wide(2))); }
Wide cosine_of_pi(Wide x) { return sine_of_pi(std::remainder(x, Wide(2)) + 0.5L); }

struct OfOne {
    const char* name;
    double (*of_double)(double);
    float (*of_float)(float);
    Wide (*reference)(Wide);
    double low, high;
    double most_ulps;
    bool spread_by_exponent = false;
};
#define KMM_ROW(name) #name, [](double x) { return ::name(x); }, [](float x) { return ::name##f(x); }
const OfOne of_one[] = {
    {KMM_ROW(rcbrt), [](Wide x) { return 1 / std::cbrt(x); }, 1e-30, 1e30, 2, true},
    {KMM_ROW(rsqrt), [](Wide x) { return 1 / std::sqrt(x); }, 1e-30, 1e30, 2, true},
    {KMM_ROW(sinpi), sine_of_pi, -40, 40, 2},
    {KMM_ROW(cospi), cosine_of_pi, -40, 40, 2},
    {KMM_ROW(erfinv), inverse_erf, -1, 1, 4},
    {KMM_ROW(erfcinv), inverse_erfc, 0, 2, 6},
    {KMM_ROW(erfcinv), inverse_erfc, 1e-37, 1, 6, true},
    {KMM_ROW(erfcx), [](Wide x) { return std::exp(x * x) * std::erfc(x); }, -8, 60, 6},
    {KMM_ROW(normcdf), [](Wide x) { return std::erfc(-x / std::sqrt(Wide(2))) / 2; }, -12, 6, 6},
    {KMM_ROW(normcdfinv), [](Wide p) { return -std::sqrt(Wide(2)) * inverse_erfc(2 * p); }, 0, 1, 6},
    {KMM_ROW(cyl_bessel_i0), [](Wide x) { return bessel(0, x); }, -80, 80, 8},
    {KMM_ROW(cyl_bessel_i1), [](Wide x) { return bessel(1, x); }, -80, 80, 8},
};
#undef KMM_ROW

TEST(DeviceMath, functions_of_one_number_are_within_a_few_units_of_the_last_place) {
    std::mt19937_64 random(7);
    for (const OfOne& f : of_one) {
        double worst = 0, worst_at = 0, worst_single = 0;
        for (int i = 0; i < repeat(2000, 200); i++) {
            double x = std::uniform_real_distribution<double>(f.low, f.high)(random);
            if (f.spread_by_exponent)
                x = std::exp(std::uniform_real_distribution<double>(std::log(f.low), std::log(f.high))(random));
            const double error = ulps(f.of_double(x), f.reference(x));
            if (error > worst) worst = error, worst_at = x;
            const auto y = static_cast<float>(x);
            worst_single = std::max(worst_single, ulps(f.of_float(y), f.reference(y)));
        }
        EXPECT_LE(worst, f.most_ulps) << f.name << " at " << worst_at;
        EXPECT_LE(worst_single, 2) << f.name << "f";
    }
}

TEST(DeviceMath, functions_of_one_number_have_the_limits_of_cuda) {
    constexpr double inf = HUGE_VAL;
    EXPECT_EQ(sinpi(3.0), 0);
    EXPECT_EQ(cospi(0.5), 0);
    EXPECT_EQ(cospi(1e15), 1);
    EXPECT_TRUE(std::isnan(sinpi(inf)) && std::isnan(cospif(HUGE_VALF)));
    EXPECT_TRUE(erfinv(1.0) == inf && erfinv(-1.0) == -inf && erfinv(0.0) == 0 && std::isnan(erfinv(1.5)));
    EXPECT_TRUE(erfcinv(0.0) == inf && erfcinv(2.0) == -inf && erfcinv(1.0) == 0 && std::isnan(erfcinv(-0.1)));
    EXPECT_TRUE(normcdf(-inf) == 0 && normcdf(inf) == 1 && normcdfinv(0.5) == 0 && normcdfinv(0.0) == -inf);
    EXPECT_TRUE(erfcx(-30.0) == inf && erfcx(-1e200) == inf && erfcx(-inf) == inf && erfcx(inf) == 0 &&
                erfcx(0.0) == 1);
    for (const double p : {5e-324, 3e-310, 1e-300}) EXPECT_LE(ulps(erfcinv(p), inverse_erfc(p)), 6) << p;
    EXPECT_TRUE(cyl_bessel_i0(0.0) == 1 && cyl_bessel_i1(0.0) == 0 && cyl_bessel_i0(inf) == inf &&
                cyl_bessel_i1(-inf) == -inf);
    EXPECT_TRUE(rcbrt(0.0) == inf && rsqrtf(0.0F) == HUGE_VALF && rcbrt(-8.0) == -0.5);
    double s = 0, c = 0;
    sincospi(0.25, &s, &c);
    EXPECT_LE(ulps(s, std::sqrt(Wide(0.5))), 1);
    EXPECT_LE(ulps(c, std::sqrt(Wide(0.5))), 1);
    float sf = 0, cf = 0;
    sincospif(1.5F, &sf, &cf);
    EXPECT_TRUE(sf == -1 && cf == 0);
}

template<typename T>
void expect_norms(const T (&x)[4], T (*three)(T, T, T), T (*four)(T, T, T, T), T (*of)(int, const T*),
                  T (*inverse_of_2)(T, T), T (*inverse_of_3)(T, T, T), T (*inverse_of_4)(T, T, T, T),
                  T (*inverse_of)(int, const T*)) {
    Wide squares[5] = {};
    for (int i = 0; i < 4; i++) squares[i + 1] = squares[i] + static_cast<Wide>(x[i]) * x[i];
    EXPECT_LE(ulps(three(x[0], x[1], x[2]), std::sqrt(squares[3])), 2);
    EXPECT_LE(ulps(four(x[0], x[1], x[2], x[3]), std::sqrt(squares[4])), 2);
    EXPECT_LE(ulps(of(4, x), std::sqrt(squares[4])), 2);
    EXPECT_LE(ulps(inverse_of_2(x[0], x[1]), 1 / std::sqrt(squares[2])), 2);
    EXPECT_LE(ulps(inverse_of_3(x[0], x[1], x[2]), 1 / std::sqrt(squares[3])), 2);
    EXPECT_LE(ulps(inverse_of_4(x[0], x[1], x[2], x[3]), 1 / std::sqrt(squares[4])), 2);
    EXPECT_LE(ulps(inverse_of(3, x), 1 / std::sqrt(squares[3])), 2);
}

TEST(DeviceMath, norms_neither_overflow_nor_vanish_before_they_must) {
    for (const double scale : {1.0, 1e200, 1e-200})
        expect_norms<double>({3 * scale, -4 * scale, 0.7 * scale, 1e-3 * scale}, norm3d, norm4d, norm, rhypot, rnorm3d,
                             rnorm4d, rnorm);
    for (const float scale : {1.0F, 1e30F, 1e-30F})
        expect_norms<float>({3 * scale, -4 * scale, 0.7F * scale, 1e-3F * scale}, norm3df, norm4df, normf, rhypotf,
                            rnorm3df, rnorm4df, rnormf);
    EXPECT_EQ(norm3d(NAN, -HUGE_VAL, 0), HUGE_VAL);
    EXPECT_TRUE(std::isnan(norm4df(NAN, 1, 2, 3)));
    EXPECT_EQ(rhypot(0.0, 0.0), HUGE_VAL);
    EXPECT_EQ(rnorm3df(0, 0, HUGE_VALF), 0);
}

TEST(DeviceMath, the_fast_ones_are_exact) {
    struct Row {
        const char* name;
        float (*fast)(float);
        Wide (*reference)(Wide);
    };
    const Row rows[] = {{"__sinf", __sinf, [](Wide x) { return std::sin(x); }},
                        {"__cosf", __cosf, [](Wide x) { return std::cos(x); }},
                        {"__tanf", __tanf, [](Wide x) { return std::tan(x); }},
                        {"__tanhf", __tanhf, [](Wide x) { return std::tanh(x); }},
                        {"__expf", __expf, [](Wide x) { return std::exp(x); }},
                        {"__exp10f", __exp10f, [](Wide x) { return std::pow(Wide(10), x); }},
                        {"__logf", __logf, [](Wide x) { return std::log(x); }},
                        {"__log2f", __log2f, [](Wide x) { return std::log2(x); }},
                        {"__log10f", __log10f, [](Wide x) { return std::log10(x); }}};
    for (const Row& row : rows)
        for (const float x : {0.1F, 0.7F, 1.3F, 2.9F, 11.7F, 30.25F})
            EXPECT_LE(ulps(row.fast(x), row.reference(x)), 2) << row.name << " at " << x;
    float s = 0, c = 0;
    __sincosf(0.5F, &s, &c);
    EXPECT_TRUE(s == __sinf(0.5F) && c == __cosf(0.5F));
    EXPECT_LE(ulps(__powf(1.7F, 9.5F), std::pow(static_cast<Wide>(1.7F), 9.5L)), 2);
    EXPECT_TRUE(__fdividef(7, 2) == 3.5F && fdividef(1, 3) == 1.0F / 3);
    EXPECT_TRUE(__saturatef(-1) == 0 && __saturatef(0.25F) == 0.25F && __saturatef(7) == 1 && __saturatef(NAN) == 0);
}

// -------------------------------------------------------------------------------------------------- rounded operations

enum class Direction { nearest, zero, up, down };
constexpr Direction directions[] = {Direction::nearest, Direction::zero, Direction::up, Direction::down};

/// What `exact` becomes; `is_sure` is false where a long double is too short to tell.
template<typename T>
T round_to(Wide exact, Direction direction, bool* is_sure) {
    const T nearest = static_cast<T>(exact);
    const T below =
        static_cast<Wide>(nearest) <= exact ? nearest : std::nextafter(nearest, -std::numeric_limits<T>::infinity());
    const T above =
        static_cast<Wide>(nearest) >= exact ? nearest : std::nextafter(nearest, std::numeric_limits<T>::infinity());
    const Wide unit =
        std::fabs(static_cast<Wide>(std::nextafter(nearest, std::numeric_limits<T>::infinity())) - nearest);
    const Wide from_number = std::fabs(exact - nearest) / unit, from_middle = std::fabs(from_number - 0.5L);
    *is_sure = std::isfinite(nearest) && from_middle > 0.01L && from_number > 0.01L;
    switch (direction) {
    case Direction::nearest: return nearest;
    case Direction::zero: return exact < 0 ? above : below;
    case Direction::up: return above;
    case Direction::down: return below;
    }
    return nearest;
}

template<typename T, std::size_t N>
struct InDirections {
    const char* name;
    T (*function[4])(T, T, T);
    Wide (*exact)(Wide, Wide, Wide);
};
#define KMM_ROW_1(T, name)                                                                 \
    #name, {                                                                               \
        [](T x, T, T) { return name##_rn(x); }, [](T x, T, T) { return name##_rz(x); },    \
            [](T x, T, T) { return name##_ru(x); }, [](T x, T, T) { return name##_rd(x); } \
    }
#define KMM_ROW_2(T, name)                                                                           \
    #name, {                                                                                         \
        [](T x, T y, T) { return name##_rn(x, y); }, [](T x, T y, T) { return name##_rz(x, y); },    \
            [](T x, T y, T) { return name##_ru(x, y); }, [](T x, T y, T) { return name##_rd(x, y); } \
    }
#define KMM_ROW_3(T, name)                                                                                     \
    #name, {                                                                                                   \
        [](T x, T y, T z) { return name##_rn(x, y, z); }, [](T x, T y, T z) { return name##_rz(x, y, z); },    \
            [](T x, T y, T z) { return name##_ru(x, y, z); }, [](T x, T y, T z) { return name##_rd(x, y, z); } \
    }
#define KMM_ROWS(T, letter, fused)                                                           \
    {KMM_ROW_2(T, __##letter##add), [](Wide x, Wide y, Wide) { return x + y; }},             \
        {KMM_ROW_2(T, __##letter##sub), [](Wide x, Wide y, Wide) { return x - y; }},         \
        {KMM_ROW_2(T, __##letter##mul), [](Wide x, Wide y, Wide) { return x * y; }},         \
        {KMM_ROW_2(T, __##letter##div), [](Wide x, Wide y, Wide) { return x / y; }},         \
        {KMM_ROW_1(T, __##letter##rcp), [](Wide x, Wide, Wide) { return 1 / x; }},           \
        {KMM_ROW_1(T, __##letter##sqrt), [](Wide x, Wide, Wide) { return std::sqrt(x); }}, { \
        KMM_ROW_3(T, fused), [](Wide x, Wide y, Wide z) { return std::fma(x, y, z); }        \
    }
const InDirections<float, 0> single[] = {
    KMM_ROWS(float, f, __fmaf),
    {KMM_ROW_3(float, __fmaf_ieee), [](Wide x, Wide y, Wide z) { return std::fma(x, y, z); }}};
const InDirections<double, 0> twofold[] = {KMM_ROWS(double, d, __fma)};

template<typename T, std::size_t Rows>
void expect_directions(const InDirections<T, 0> (&rows)[Rows]) {
    std::mt19937_64 random(11);
    std::uniform_real_distribution<T> number(T(0.5), T(8));
    for (const auto& row : rows) {
        int compared = 0;
        for (int i = 0; i < repeat(1000, 200); i++) {
            const T x = number(random), y = number(random) / T(37), z = i % 2 == 0 ? number(random) : -number(random);
            const Wide exact = row.exact(x, y, z);
            for (std::size_t d = 0; d < 4; d++) {
                bool is_sure = false;
                const T right = round_to<T>(exact, directions[d], &is_sure);
                if (!is_sure) continue;
                compared++;
                ASSERT_EQ(row.function[d](x, y, z), right)
                    << row.name << " " << d << " of " << x << " " << y << " " << z;
            }
        }
        EXPECT_GT(compared, 300) << row.name;
        EXPECT_EQ(std::fegetround(), FE_TONEAREST);
    }
}

TEST(DeviceMath, operations_round_in_the_direction_of_their_names) {
    expect_directions(single);
    expect_directions(twofold);
    EXPECT_EQ(__frsqrt_rn(4), 0.5F);
}

/// Of an x that fits no long double exactly there is none.
template<typename To, typename From>
void expect_casts(const char* name, To (*const (&casts)[4])(From), const std::vector<From>& values) {
    for (const From x : values)
        for (std::size_t d = 0; d < 4; d++) {
            To right{};
            if constexpr (std::is_integral_v<To>) {
                const Wide whole = d == 0   ? std::nearbyint(static_cast<Wide>(x))
                                   : d == 1 ? std::trunc(static_cast<Wide>(x))
                                   : d == 2 ? std::ceil(static_cast<Wide>(x))
                                            : std::floor(static_cast<Wide>(x));
                using Limits = std::numeric_limits<To>;
                if (std::isnan(static_cast<Wide>(x)))
                    right = sizeof(From) == 8 || sizeof(To) == 8
                                ? static_cast<To>(std::uint64_t{1} << (8 * sizeof(To) - 1))
                                : To(0);
                else if (whole >= static_cast<Wide>(Limits::max()))
                    right = Limits::max();
                else if (whole <= static_cast<Wide>(Limits::min()))
                    right = Limits::min();
                else
                    right = static_cast<To>(whole);
            } else {
                bool is_sure = false;
                right = round_to<To>(static_cast<Wide>(x), directions[d], &is_sure);
                if (static_cast<Wide>(x) == static_cast<Wide>(right)) is_sure = true;
                if (!is_sure) continue;
            }
            EXPECT_EQ(casts[d](x), right) << name << " " << d << " of " << x;
        }
}
#define KMM_CASTS(To, From, name)                                                                                \
    {                                                                                                            \
        To (*const casts[4])(From) = {[](From x) { return name##_rn(x); }, [](From x) { return name##_rz(x); },  \
                                      [](From x) { return name##_ru(x); }, [](From x) { return name##_rd(x); }}; \
        expect_casts<To, From>(#name, casts, values_of<From>());                                                 \
    }

template<typename T>
std::vector<T> values_of() {
    std::mt19937_64 random(5);
    std::vector<T> values{T(0), T(1), std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()};
    for (int i = 0; i < 300; i++) {
        if constexpr (std::is_integral_v<T>) {
            values.push_back(static_cast<T>(random() >> (random() % 64)));
        } else {
            const double size = std::exp2(std::uniform_real_distribution<double>(-3, 66)(random));
            values.push_back(static_cast<T>(i % 2 == 0 ? size : -size));
        }
    }
    if constexpr (std::is_floating_point_v<T>)
        for (const double x : {0.5, 1.5, 2.5, -0.5, -1.5, -2.5, HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN),
                               2147483647.5, 4294967295.5})
            values.push_back(static_cast<T>(x));
    return values;
}

TEST(DeviceMath, casts_round_in_the_direction_of_their_names_and_saturate) {
    KMM_CASTS(int, float, __float2int)
    KMM_CASTS(unsigned, float, __float2uint)
    KMM_CASTS(long long, float, __float2ll)
    KMM_CASTS(unsigned long long, float, __float2ull)
    KMM_CASTS(int, double, __double2int)
    KMM_CASTS(unsigned, double, __double2uint)
    KMM_CASTS(long long, double, __double2ll)
    KMM_CASTS(unsigned long long, double, __double2ull)
    KMM_CASTS(float, double, __double2float)
    KMM_CASTS(float, int, __int2float)
    KMM_CASTS(float, unsigned, __uint2float)
    KMM_CASTS(float, long long, __ll2float)
    KMM_CASTS(float, unsigned long long, __ull2float)
    KMM_CASTS(double, long long, __ll2double)
    KMM_CASTS(double, unsigned long long, __ull2double)
    EXPECT_FALSE(std::signbit(__ull2double_rd(0)) || std::signbit(__ull2float_rd(0)));
    EXPECT_TRUE(std::signbit(__double2float_rd(-0.0)));
    EXPECT_TRUE(__int2double_rn(-7) == -7 && __uint2double_rn(~0u) == 4294967295.0);
    EXPECT_EQ(__hiloint2double(__double2hiint(-1.75e-30), __double2loint(-1.75e-30)), -1.75e-30);
    EXPECT_TRUE(__int_as_float(__float_as_int(1.5F)) == 1.5F && __uint_as_float(__float_as_uint(-2.5F)) == -2.5F);
    EXPECT_EQ(__longlong_as_double(__double_as_longlong(3.25)), 3.25);
}

// ------------------------------------------------------------------------------------------------------------ integers

TEST(DeviceMath, integers_are_as_wide_ones_say) {
    __extension__ using Signed = __int128;
    __extension__ using Unsigned = unsigned __int128;
    std::mt19937_64 random(3);
    for (int i = 0; i < repeat(5000, 500); i++) {
        const auto a = static_cast<long long>(random() >> random() % 64),
                   b = static_cast<long long>(random() >> random() % 64);
        const auto ua = static_cast<unsigned long long>(a), ub = static_cast<unsigned long long>(b);
        const int x = static_cast<int>(a), y = static_cast<int>(b);
        const auto ux = static_cast<unsigned>(x), uy = static_cast<unsigned>(y),
                   s = static_cast<unsigned>(random() % 70);
        const unsigned both_or = ux | uy;
        ASSERT_EQ(__mulhi(x, y), static_cast<int>(static_cast<Signed>(x) * y >> 32));
        ASSERT_EQ(__umulhi(ux, uy), static_cast<unsigned>(static_cast<Unsigned>(ux) * uy >> 32));
        ASSERT_EQ(__mul64hi(a, b), static_cast<long long>(static_cast<Signed>(a) * b >> 64));
        ASSERT_EQ(__umul64hi(ua, ub), static_cast<unsigned long long>(static_cast<Unsigned>(ua) * ub >> 64));
        ASSERT_EQ(__umul24(ux, uy), static_cast<unsigned>(std::uint64_t{ux % (1u << 24)} * (uy % (1u << 24))));
        const auto low_24 = [](int v) { return (v % (1 << 24) + (3 << 23)) % (1 << 24) - (1 << 23); };
        ASSERT_EQ(__mul24(x, y), static_cast<int>(static_cast<std::int64_t>(low_24(x)) * low_24(y))) << x << " " << y;
        ASSERT_EQ(__sad(x, y, s), static_cast<unsigned>(std::llabs(std::int64_t{x} - y)) + s);
        ASSERT_EQ(__usad(ux, uy, s), static_cast<unsigned>(std::llabs(std::int64_t{ux} - std::int64_t{uy})) + s);
        const auto mean = [](std::int64_t sum) { return (sum - (sum % 2 + 2) % 2) / 2; };
        ASSERT_EQ(__hadd(x, y), mean(std::int64_t{x} + y));
        ASSERT_EQ(__rhadd(x, y), mean(std::int64_t{x} + y + 1));
        ASSERT_EQ(__uhadd(ux, uy), mean(std::int64_t{ux} + uy));
        ASSERT_EQ(__urhadd(ux, uy), mean(std::int64_t{ux} + uy + 1));
        const std::uint64_t joined = std::uint64_t{uy} << 32 | ux;
        ASSERT_EQ(__funnelshift_l(ux, uy, s), static_cast<unsigned>(static_cast<Unsigned>(joined) << s % 32 >> 32));
        ASSERT_EQ(__funnelshift_r(ux, uy, s), static_cast<unsigned>(joined >> s % 32));
        ASSERT_EQ(__funnelshift_lc(ux, uy, s),
                  static_cast<unsigned>(static_cast<Unsigned>(joined) << std::min(s, 32u) >> 32));
        ASSERT_EQ(__funnelshift_rc(ux, uy, s), static_cast<unsigned>(joined >> std::min(s, 32u)));
        unsigned permuted = 0, dot_4 = both_or, dot_2[2] = {both_or, both_or};
        int signed_4 = x, signed_2[2] = {x, x};
        for (unsigned k = 0; k < 4; k++) {
            const unsigned chosen = uy >> 4 * k & 7;
            permuted |= static_cast<unsigned>(joined >> 8 * chosen & 255) << 8 * k;
            const unsigned byte_a = ux >> 8 * k & 255, byte_b = uy >> 8 * k & 255, half = ux >> 16 * (k % 2) & 0xffff;
            dot_4 += byte_a * byte_b;
            dot_2[k / 2] += half * byte_b;
            signed_4 = static_cast<int>(
                static_cast<unsigned>(signed_4) +
                static_cast<unsigned>(static_cast<std::int8_t>(byte_a) * static_cast<std::int8_t>(byte_b)));
            signed_2[k / 2] = static_cast<int>(
                static_cast<unsigned>(signed_2[k / 2]) +
                static_cast<unsigned>(static_cast<std::int16_t>(half) * static_cast<std::int8_t>(byte_b)));
        }
        ASSERT_EQ(__byte_perm(ux, uy, uy), permuted);
        ASSERT_EQ(__dp4a(ux, uy, both_or), dot_4);
        ASSERT_EQ(__dp4a(x, y, x), signed_4);
        ASSERT_EQ(__dp2a_lo(ux, uy, both_or), dot_2[0]);
        ASSERT_EQ(__dp2a_hi(ux, uy, both_or), dot_2[1]);
        ASSERT_EQ(__dp2a_lo(x, y, x), signed_2[0]);
        ASSERT_EQ(__dp2a_hi(x, y, x), signed_2[1]);
        ASSERT_TRUE(umin(ux, uy) == std::min(ux, uy) && umax(ux, uy) == std::max(ux, uy));
        ASSERT_TRUE(llmin(a, b) == std::min(a, b) && llmax(a, b) == std::max(a, b));
        ASSERT_TRUE(ullmin(ua, ub) == std::min(ua, ub) && ullmax(ua, ub) == std::max(ua, ub));
        int bits = 0, first = 0, leading = 0;
        std::uint64_t reversed = 0;
        for (int k = 0; k < 64; k++) {
            const bool is_set = (ua >> k & 1) != 0;
            bits += is_set;
            if (is_set && first == 0) first = k + 1;
            leading = is_set ? 0 : leading + 1;
            reversed = reversed << 1 | (is_set ? 1u : 0u);
        }
        ASSERT_TRUE(__popcll(ua) == bits && __ffsll(a) == first && __clzll(a) == leading && __brevll(ua) == reversed);
    }
    // Bits 1, 4, 6 and 31.
    constexpr unsigned mask = 0x80000052u;
    EXPECT_TRUE(__fns(mask, 0, 1) == 1 && __fns(mask, 1, 1) == 1 && __fns(mask, 2, 2) == 6 && __fns(mask, 0, 4) == 31);
    EXPECT_TRUE(__fns(mask, 5, -1) == 4 && __fns(mask, 31, -4) == 1 && __fns(mask, 31, -5) == ~0u &&
                __fns(mask, 0, 5) == ~0u);
    EXPECT_TRUE(__fns(mask, 4, 0) == 4 && __fns(mask, 5, 0) == ~0u);
}

// --------------------------------------------------------------------------------------------------------- in a kernel

__global__ void reduce_in_warps(kmm::GPUViewMut<unsigned> out, kmm::GPUView<int> in) {
    const unsigned lane = threadIdx.x % 32;
    if (lane >= 20) return;  // lanes that have gone take no part
    const int value = __ldcs(&in[threadIdx.x]);
    const auto bits = static_cast<unsigned>(value);
    const unsigned all = 0xfffff;
    const unsigned results[] = {static_cast<unsigned>(__reduce_add_sync(all, value)),
                                __reduce_add_sync(all, bits),
                                static_cast<unsigned>(__reduce_min_sync(all, value)),
                                __reduce_min_sync(all, bits),
                                static_cast<unsigned>(__reduce_max_sync(all, value)),
                                __reduce_max_sync(all, bits),
                                __reduce_and_sync(all, bits),
                                __reduce_or_sync(all, bits),
                                __reduce_xor_sync(all, bits)};
    for (unsigned i = 0; i < 9; i++) __stcs(&out[(threadIdx.x / 32 * 20 + lane) * 9 + i], results[i]);
}

TEST(DeviceMath, warps_reduce_over_the_lanes_that_are_there) {
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_device_memory = std::size_t{16} << 20;
    const RuntimeHandle rt = kmm::make_runtime(config);
    std::vector<int> values(64);
    std::mt19937 random(1);
    for (int& v : values) v = static_cast<int>(random());
    const auto in = rt.allocate(values);
    Array<unsigned> out(2 * 20 * 9);
    rt.submit(ResourceId(DeviceId(0)), GPUKernel(reduce_in_warps, kmm::dim3(64)).grid(1), write(out), in);
    const std::vector<unsigned> found = out.copy_to_vector();
    for (std::size_t warp = 0; warp < 2; warp++) {
        const int* const v = values.data() + 32 * warp;
        std::vector<unsigned> u(v, v + 20);
        unsigned sum = 0, conjunction = ~0u, disjunction = 0, parity = 0;
        for (const unsigned x : u) sum += x, conjunction &= x, disjunction |= x, parity ^= x;
        const unsigned right[] = {sum,
                                  sum,
                                  static_cast<unsigned>(*std::min_element(v, v + 20)),
                                  *std::min_element(u.begin(), u.end()),
                                  static_cast<unsigned>(*std::max_element(v, v + 20)),
                                  *std::max_element(u.begin(), u.end()),
                                  conjunction,
                                  disjunction,
                                  parity};
        for (std::size_t lane = 0; lane < 20; lane++)
            for (std::size_t i = 0; i < 9; i++)
                ASSERT_EQ(found[(warp * 20 + lane) * 9 + i], right[i]) << warp << " " << lane << " " << i;
    }
}

}  // namespace

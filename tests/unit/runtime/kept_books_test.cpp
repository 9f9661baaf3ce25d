// What threads keep for their next submit: kmm/runtime/kept_books.hpp.
#include "kmm/runtime/kept_books.hpp"

#include <gtest/gtest.h>

namespace {

using kmm::detail::KeptBooks;

class Books final : public KeptBooks {
  public:
    Books() {
        give_all_back();  // as another thread may just now
        is_complete_ = true;
        enter();
    }
    ~Books() { leave(); }
    int num_asked = 0;

  private:
    void give_back() noexcept override {
        EXPECT_TRUE(is_complete_);
        ++num_asked;
    }
    bool is_complete_ = false;
};

TEST(KeptBooks, are_asked_for_from_the_end_of_their_construction_to_the_begin_of_their_end) {
    Books first;
    EXPECT_EQ(first.num_asked, 0);
    {
        const Books second;
        EXPECT_EQ(first.num_asked, 1);
        EXPECT_EQ(second.num_asked, 0);
        KeptBooks::give_all_back();
        EXPECT_EQ(second.num_asked, 1);
    }
    KeptBooks::give_all_back();
    EXPECT_EQ(first.num_asked, 3);
}

}  // namespace

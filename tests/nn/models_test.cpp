// The benchmark's models as their publishers describe them: names, shapes, counts; and the data of the benchmark.
#include "aeshna/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/workload_support.h"

namespace aeshna::test {
namespace {

using models::Phase;
using models::Workload;

/// Of the published configurations; GFLOP of the full and the minimal phase.
struct Published {
  const char* name;
  std::int64_t parameters, trainable, tensors;
  double gflop[2];
};
constexpr Published kPublished[] = {
    {"smollm2", 134'515'008, 134'515'008, 272, {35.56, 0.269}}, {"smolvla", 99'848'592, 99'848'592, 152, {9.82, 0.249}},
    {"unet", 10'928'768, 10'928'768, 181, {2.51, 2.51}},        {"resnet50", 25'530'472, 25'530'472, 108, {32.7, 8.18}},
    {"whisper", 8'208'384, 7'632'384, 67, {36.94, 36.94}},
};

TEST(Models, HaveThePublishedSizes) {
  for (const Published& want : kPublished) {
    SCOPED_TRACE(want.name);
    const Workload& w = models::find_workload(want.name);
    EXPECT_EQ(w.parameters, want.parameters);
    EXPECT_EQ(w.trainable, want.trainable);
    EXPECT_EQ(w.parameter_tensors, want.tensors);
    for (int i = 0; i < 2; ++i) EXPECT_NEAR(w.forward_flop[i] * 1e-9 / want.gflop[i], 1, 2e-3);
    EXPECT_LE(models::find_workload(want.name, true).forward_flop[0], 20e6);
  }
}

}  // namespace
}  // namespace aeshna::test
